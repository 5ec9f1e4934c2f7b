"""Rows that clients received, held once where several received the same.

A server's sum of a node is the same for every client that is sent it, unless a defense changes what single clients get.
Nothing is taken for granted: rows are compared as they arrived, and a row that differs from what the first client
received of its node is held beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.nn.shared_rows import CHUNK_BYTES, SharedRows


class ReceivedOnce:
    """Rows of nodes, as they arrive client by client."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes, self._known, self._first = num_nodes, torch.zeros(0, dtype=torch.bool), torch.zeros(0)
        self._others: list[Tensor] = []
        self._index: list[Tensor] = []
        self._count = num_nodes

    def add(self, nodes: Tensor, rows: Tensor) -> None:
        """Take up the ``rows`` [r, F] that one or several clients received of ``nodes`` [r]."""
        if not self._index:
            self._known = torch.zeros(self._num_nodes, dtype=torch.bool, device=rows.device)
            self._first = rows.new_zeros(self._num_nodes, rows.shape[1])
        step = max(1, CHUNK_BYTES // max(1, rows.shape[1] * rows.element_size()))
        for low in range(0, len(nodes), step):
            self._index.append(self._places(nodes[low : low + step], rows[low : low + step]))

    def _places(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Return where the table has ``rows`` [r, F] of ``nodes`` [r]."""
        fresh = (~self._known[nodes]).nonzero().squeeze(1)
        if len(fresh):
            self._first[nodes[fresh]] = rows[fresh]  # of a node that is there twice, any of its rows
            self._known[nodes[fresh]] = True
        differs = (self._first.index_select(0, nodes) != rows).any(1)
        if not bool(differs.any()):
            return nodes.int()
        places, count = nodes.clone(), int(differs.sum().item())
        places[differs] = torch.arange(self._count, self._count + count, device=nodes.device)
        self._others.append(rows[differs])
        self._count += count
        return places.int()

    def rows(self) -> SharedRows:
        """Return all rows [M, F], in the order in which they arrived."""
        table = torch.cat([self._first, *self._others]) if self._others else self._first
        return SharedRows.of(table, torch.cat(self._index))
