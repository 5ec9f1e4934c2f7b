"""Personalised propagation (Klicpera, Bojchevski and Guennemann, ICLR 2019) as one matrix, or step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.nn.sparse import SparseMatrix

DENSE_UP_TO = 1024
"""Nodes up to which one matrix is faster than a product per step; at 13,752 nodes it would take more than 6 GB."""


def propagator(
    edge_index: Tensor, num_nodes: int, alpha: float, steps: int, *, truncated: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return what maps rows [N, d] to :func:`personalised_propagation` times these rows [N, d], differentiably."""
    if num_nodes <= DENSE_UP_TO:
        matrix = personalised_propagation(edge_index, num_nodes, alpha, steps, truncated=truncated)
        return lambda rows: matrix @ rows
    itself = torch.arange(num_nodes, device=edge_index.device)
    row, column = torch.cat([edge_index, itself.expand(2, -1)], 1)
    scale = torch.bincount(row, minlength=num_nodes).double().rsqrt()
    step = SparseMatrix.from_entries(row, column, (scale[row] * scale[column]).float(), (num_nodes, num_nodes))

    def propagate(rows: Tensor) -> Tensor:
        found = alpha * rows if truncated else rows
        for _ in range(steps):
            found = (1 - alpha) * (step @ found) + alpha * rows
        return found

    return propagate


def personalised_propagation(
    edge_index: Tensor, num_nodes: int, alpha: float, steps: int, *, truncated: bool = False
) -> Tensor:
    """Return APPNP's matrix (Klicpera et al. 2019) as float32 [N, N].

    ``A = sum_{i < M} alpha (1 - alpha)^i P^i + (1 - alpha)^M P^M`` with ``P = (D + I)^-1/2 (Adj + I) (D + I)^-1/2``; it
    is what M steps of ``Z <- (1 - alpha) P Z + alpha H`` from ``Z = H`` do to H. Every node of a connected graph within
    M hops of another has a positive weight for it.

    Args:
        truncated: the sum of the personalised PageRank cut off after its term for M: ``P^M`` has the weight
            ``alpha (1 - alpha)^M``, and a row of weights adds up to less than 1.
    """
    closed = torch.eye(num_nodes, dtype=torch.float64, device=edge_index.device)
    closed[edge_index[0], edge_index[1]] = 1
    scale = closed.sum(1).rsqrt()
    step = scale.unsqueeze(1) * closed * scale
    start = torch.eye(num_nodes, dtype=torch.float64, device=edge_index.device)
    total = alpha * start if truncated else start
    for _ in range(steps):
        total = (1 - alpha) * (step @ total) + alpha * start
    return total.float()
