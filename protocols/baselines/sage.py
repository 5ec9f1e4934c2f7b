"""GraphSAGE with mean aggregator (Hamilton, Ying and Leskovec 2017), K clients at once, on sampled neighbours.

``h_i' = relu(h_i W_own + mean_j h_j W_near + b)`` over the neighbours drawn for i, without relu in the last layer. A
node without neighbours averages over itself. The first layer multiplies by its weights before it averages, so that the
features are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_least
from fglaudit.nn.graph_transformer import Dropout, Neighborhood, Weights, linear
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.sparse_tensors import csr


@dataclass(frozen=True)
class Sage:
    """The architecture; satisfies :class:`fglaudit.protocols.fedgt.sampled_neighbors.Network`."""

    layers: int
    hidden: int

    def __post_init__(self) -> None:
        require_least(self, layers=1, hidden=1)

    def layout(self, num_inputs: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights: per layer W_own and W_near side by side, each with a bias (b is their sum)."""
        widths = [num_inputs, *[self.hidden] * (self.layers - 1), num_classes]
        names = ["input", *(f"layers.{index}" for index in range(1, self.layers))]
        layout: dict[str, tuple[int, ...]] = {}
        for name, width, out in zip(names, widths[:-1], widths[1:], strict=True):
            layout |= {f"{name}.weight": (width, 2 * out), f"{name}.bias": (2 * out,)}
        return layout

    def logits(
        self,
        weights: Weights,
        inputs: Tensor,
        neighborhoods: Sequence[Neighborhood],
        global_nodes: Tensor,
        dropout: Dropout,
    ) -> Tensor:
        """Return the class scores [K, m, classes]; ``inputs`` [K, n, 2 d]: all rows times the first layer's weights."""
        rows = inputs
        for index, where in enumerate(neighborhoods):
            if index:
                rows = linear(weights, f"layers.{index}", dropout(functional.relu(rows)))
            rows = _own_and_mean(rows, where)
        return rows


def _own_and_mean(rows: Tensor, where: Neighborhood) -> Tensor:
    """Return every target's own row plus the mean of its neighbours' [K, m, d].

    One sparse product: rows that are gathered first would take many times its memory and time.

    Args:
        rows: [K, n, 2 d], what a node adds to itself and, beside it, what its neighbours average of it.
    """
    clients, size, width = rows.shape

    def shares() -> Tensor:
        neighbors, logs = where.neighbors, where.log_counts
        shape, device = neighbors.shape, neighbors.device
        even = torch.full(shape, 1 / shape[2], dtype=rows.dtype, device=device)
        share = even if logs is None else logs.softmax(2).to(rows.dtype)
        everyone = torch.arange(size, device=device).expand(clients, -1)
        targets = everyone if where.targets is None else where.targets
        first = (torch.arange(clients, device=device) * size).view(-1, 1, 1)
        node = first + torch.cat([targets.unsqueeze(2), neighbors], 2)
        half = torch.ones_like(node)
        half[:, :, 0] = 0
        weight = torch.cat([torch.ones_like(share[:, :, :1]), share], 2)
        starts = torch.arange(0, node.numel() + 1, node.shape[2], device=device)
        return csr(starts, (2 * node + half).flatten(), weight.flatten(), 2 * clients * size)

    return (SparseMatrix(shares) @ rows.reshape(-1, width // 2)).view(clients, -1, width // 2)
