"""Personalised PageRank of every node of a graph, exact for small graphs and by push for large ones.

``PPR = nu (I - (1 - nu) A D^-1)^-1`` (FedGT, section 4.1; Page et al. 1999). The scores of source i are column i: how
often a walk that starts at i, follows a random edge with probability 1 - nu and else stops, stops at j. They are the
rows of what is returned here. A node without edges scores nu at itself and 0 elsewhere.

The push (Andersen, Chung and Lang, FOCS 2006) runs for all sources at once on sparse matrices: while some residual
``r_i(u)`` is at least ``epsilon d_u``, a share nu of every such residual becomes score and the rest moves on to the
neighbours of u. Its scores are lower bounds within ``epsilon d_u`` of the exact ones, and at most ``1 / (nu epsilon)``
scores per source are not zero, so memory is linear in the nodes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglaudit.errors import FglauditError

EXACT_UP_TO = 4096
"""Nodes up to which the dense matrix is inverted; 64 MiB."""


def exact_pagerank(edge_index: Tensor, num_nodes: int, restart: float) -> Tensor:
    """Return the scores [n, n] by source (rows), float32; ``edge_index`` [2, e], undirected without self-loops."""
    dense = torch.zeros(num_nodes, num_nodes)
    dense[edge_index[0], edge_index[1]] = 1
    walk = dense / dense.sum(1, keepdim=True).clamp(min=1)
    system = torch.eye(num_nodes) - (1 - restart) * walk
    inverse: Tensor = torch.linalg.inv(system)
    return restart * inverse


def pushed_pagerank(edge_index: Tensor, num_nodes: int, restart: float, epsilon: float) -> sp.csr_array:
    """Return lower bounds [n, n] on the scores by source (rows), at most ``epsilon x degree`` below the exact ones."""
    if epsilon <= 0:
        raise FglauditError(f"the error bound of a push must be positive; got {epsilon:g}; use e.g. 1e-4")
    row, column = edge_index.numpy()
    degree = np.maximum(np.bincount(row, minlength=num_nodes), 1)
    walk = sp.csr_array(((1 / degree)[row], (row, column)), shape=(num_nodes, num_nodes))
    residual = sp.csr_array(sp.eye_array(num_nodes))
    scores = sp.csr_array((num_nodes, num_nodes))
    while True:
        large = residual.data >= epsilon * degree[residual.indices]
        if not large.any():
            return scores
        moved, rest = residual.copy(), residual.copy()
        moved.data[~large] = 0
        rest.data[large] = 0
        moved.eliminate_zeros()
        rest.eliminate_zeros()
        scores = sp.csr_array(scores + restart * moved)
        residual = sp.csr_array(rest + (1 - restart) * (moved @ walk))


def largest_scores(
    edge_index: Tensor,
    num_nodes: int,
    restart: float,
    width: int,
    *,
    exact_up_to: int = EXACT_UP_TO,
    epsilon: float = 1e-4,
) -> tuple[Tensor, Tensor]:
    """Return every source's ``width`` nodes with the largest scores [n, width], and these scores [n, width]; 0 pads.

    Raises:
        FglauditError: unless 0 < restart <= 1.
    """
    if not 0 < restart <= 1:
        raise FglauditError(f"the restart probability lies in (0, 1]; got {restart:g}; the paper uses 0.15")
    nodes = torch.zeros(num_nodes, width, dtype=torch.long)
    scores = torch.zeros(num_nodes, width)
    if num_nodes <= exact_up_to:
        top = exact_pagerank(edge_index, num_nodes, restart).topk(min(width, num_nodes), 1)
        nodes[:, : top.indices.shape[1]], scores[:, : top.values.shape[1]] = top.indices, top.values.clamp(min=0)
        return nodes, scores
    sparse = pushed_pagerank(edge_index, num_nodes, restart, epsilon)
    source = np.repeat(np.arange(num_nodes), np.diff(sparse.indptr))
    order = np.lexsort((-sparse.data, source))
    rank = np.arange(len(order)) - sparse.indptr[source]  # the order keeps rows together, so row starts do not move
    kept = rank < width
    place = torch.from_numpy(source[kept]), torch.from_numpy(rank[kept])
    nodes[place] = torch.from_numpy(sparse.indices[order][kept]).long()
    scores[place] = torch.from_numpy(sparse.data[order][kept]).float()
    return nodes, scores
