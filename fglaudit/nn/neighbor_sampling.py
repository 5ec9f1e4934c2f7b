"""Which nodes a node attends to: candidates per node, and random draws of n_s of them (FedGT, sections 4.1 and E.4).

* ``ppr``: the candidates are the nodes with the largest personalised PageRank, drawn in proportion to it.
* ``graphsage``: the nodes within two hops, all alike.
* ``attribute``: the nodes with the most similar features, drawn in proportion to the cosine.

Draws are without replacement, one Gumbel variable per candidate (the n_s largest of ``log p + Gumbel`` are such a draw), for all
clients and nodes at once. Without a generator the n_s most probable candidates are taken. A node always attends to itself as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import unknown
from fglaudit.graph import ClientGraph
from fglaudit.nn.ppr import EXACT_UP_TO, largest_scores

STRATEGIES = ("ppr", "graphsage", "attribute")
ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Candidates:
    """Candidates of every node of every client.

    Attributes:
        nodes: local node indices [K, n, w].
        log_scores: [K, n, w]; -inf where there is no candidate.
    """

    nodes: Tensor
    log_scores: Tensor

    def draw(self, rows: Tensor, count: int, rng: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return ``count`` neighbours of the nodes ``rows`` [K, m] besides themselves: [K, m, 1 + count], and which are real.

        Args:
            rng: draws, on the device of the candidates; None takes the most probable ones.
        """
        client = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        nodes, score = self.nodes[client, rows], self.log_scores[client, rows]
        if rng is not None:
            uniform = torch.rand(score.shape, generator=rng, device=score.device).clamp(min=1e-20)
            score = score - (-uniform.log()).log()
        top = score.topk(min(count, score.shape[2]), 2)
        own = rows.unsqueeze(2)
        chosen = torch.cat([own, nodes.gather(2, top.indices)], 2)
        return chosen, torch.cat([torch.ones_like(own, dtype=torch.bool), torch.isfinite(top.values)], 2)

    def to(self, device: torch.device) -> Candidates:
        return Candidates(self.nodes.to(device), self.log_scores.to(device))


def find_candidates(
    clients: Sequence[ClientGraph],
    strategy: str,
    width: int,
    restart: float,
    rng: torch.Generator,
    exact_up_to: int = EXACT_UP_TO,
) -> Candidates:
    """Return at most ``width`` candidates per node of every client, padded to the largest client.

    Args:
        restart: nu of the personalised PageRank.
        rng: chooses among more than ``width`` nodes within two hops.

    Raises:
        FglauditError: for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise unknown("sampling strategy", strategy, STRATEGIES)
    largest = max(len(client.nodes) for client in clients)
    nodes = torch.zeros(len(clients), largest, width, dtype=torch.long)
    scores = torch.zeros(len(clients), largest, width)
    for k, client in enumerate(clients):
        count = len(client.nodes)
        if strategy == "ppr":
            found = largest_scores(client.edge_index, count, restart, width, exact_up_to=exact_up_to)
        elif strategy == "graphsage":
            found = _two_hops(client.edge_index, count, width, rng)
        else:
            found = _similar(client.x, width)
        nodes[k, :count], scores[k, :count] = found
    scores.masked_fill_(nodes == torch.arange(largest).unsqueeze(1), 0)  # a node itself is always taken, not drawn
    return Candidates(nodes, scores.log())


def _two_hops(edge_index: Tensor, num_nodes: int, width: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    row, column = edge_index.numpy()
    adjacency = sp.csr_array((np.ones(len(row)), (row, column)), shape=(num_nodes, num_nodes))
    pairs = sp.coo_array(adjacency + adjacency @ adjacency)
    reached = torch.from_numpy(np.stack([pairs.row, pairs.col])).long()
    reached = reached[:, torch.randperm(reached.shape[1], generator=rng)]
    reached = reached[:, torch.argsort(reached[0], stable=True)]
    start = torch.zeros(num_nodes + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(reached[0], minlength=num_nodes), 0, out=start[1:])
    rank = torch.arange(reached.shape[1]) - start[reached[0]]
    kept = rank < width
    nodes, scores = torch.zeros(num_nodes, width, dtype=torch.long), torch.zeros(num_nodes, width)
    nodes[reached[0, kept], rank[kept]] = reached[1, kept]
    scores[reached[0, kept], rank[kept]] = 1.0
    return nodes, scores


def _similar(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    unit = functional.normalize(x, dim=1)
    nodes, scores = torch.zeros(len(x), width, dtype=torch.long), torch.zeros(len(x), width)
    for start in range(0, len(x), ROWS_AT_ONCE):  # blocks of rows: the whole matrix of cosines is quadratic
        top = (unit[start : start + ROWS_AT_ONCE] @ unit.T).topk(min(width, len(x)), 1)
        nodes[start : start + ROWS_AT_ONCE, : top.indices.shape[1]] = top.indices
        scores[start : start + ROWS_AT_ONCE, : top.values.shape[1]] = top.values.clamp(min=0)
    return nodes, scores
