"""Rows of K clients, each multiplied by its own client's weights in one batched product."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.sparse import SparseMatrix


@dataclass(frozen=True)
class ClientRows:
    """Where M rows stand in a grid [K, size] of equally many places per client.

    Attributes:
        client: of every row [M]; -1 for a row of nobody, whose product is 0.
        place: [M], an index into the flat grid; K size for rows of nobody.
        size: places per client.
        num_clients: K.
    """

    client: Tensor
    place: Tensor
    size: int
    num_clients: int

    @staticmethod
    def of(client: Tensor, num_clients: int, device: torch.device) -> ClientRows:
        """Give every row of ``client`` [M], on the host, a place."""
        counts = torch.bincount(client + 1, minlength=num_clients + 1)
        order = torch.argsort(client, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[client[order] + 1]
        size = max(1, int(counts[1:].max().item()))
        place = torch.where(client < 0, num_clients * size, client * size + rank)
        return ClientRows(client.to(device), place.to(device), size, num_clients)

    def blocks(self, x: Tensor) -> SparseMatrix:
        """Return rows ``x`` [M, F] as a sparse matrix [M, K F] with a block of columns per client."""
        held = self.client >= 0
        row, column = (x * held.unsqueeze(1)).nonzero(as_tuple=True)
        shape = (len(x), self.num_clients * x.shape[1])
        return SparseMatrix.from_entries(row, self.client[row] * x.shape[1] + column, x[row, column], shape)

    def product(self, rows: SparseMatrix | Tensor, weights: Tensor) -> Tensor:
        """Return every row times its client's ``weights`` [K, in, out], [M, out]."""
        if isinstance(rows, SparseMatrix):
            return rows @ weights.flatten(0, 1)
        grid = rows.new_zeros(self.num_clients * self.size + 1, rows.shape[1]).index_copy(0, self.place, rows)
        made = (grid[:-1].view(self.num_clients, self.size, -1) @ weights).flatten(0, 1)
        return torch.cat([made, made.new_zeros(1, made.shape[1])])[self.place]
