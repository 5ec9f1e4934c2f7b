"""Personalised propagation (Klicpera, Bojchevski and Guennemann, ICLR 2019) as one matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def personalised_propagation(edge_index: Tensor, num_nodes: int, alpha: float, steps: int) -> Tensor:
    """Return APPNP's matrix (Klicpera et al. 2019) as float32 [N, N].

    ``A = sum_{i < M} alpha (1 - alpha)^i P^i + (1 - alpha)^M P^M`` with ``P = (D + I)^-1/2 (Adj + I) (D + I)^-1/2``; it
    is what M steps of ``Z <- (1 - alpha) P Z + alpha H`` from ``Z = H`` do to H. Every node of a connected graph within
    M hops of another has a positive weight for it.
    """
    closed = torch.eye(num_nodes, dtype=torch.float64, device=edge_index.device)
    closed[edge_index[0], edge_index[1]] = 1
    scale = closed.sum(1).rsqrt()
    step = scale.unsqueeze(1) * closed * scale
    start = torch.eye(num_nodes, dtype=torch.float64, device=edge_index.device)
    total = start
    for _ in range(steps):
        total = (1 - alpha) * (step @ total) + alpha * start
    return total.float()
