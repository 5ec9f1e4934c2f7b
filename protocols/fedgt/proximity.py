"""Gophormer's proximity encoding: entries of powers of a client's normalised adjacency, looked up by pairs of nodes.

``A~ = D^-1/2 (A + I) D^-1/2`` with self-loops in D. Only pairs within ``powers`` hops are stored, sparsely: memory
grows with their number, which is at most n^2 per client and ``sum_i degree_i^2`` for two powers. Small clients have a
table of all pairs, in which they are found sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglaudit.graph import ClientGraph

TABLE = 2**26
"""Numbers in a table of all pairs up to which there is one; 256 MiB."""


@dataclass(frozen=True)
class Proximity:
    """Powers of the adjacencies of K clients, padded to n nodes.

    Attributes:
        keys: ``(k n + i) n + j`` of the stored pairs, ascending [e].
        values: ``A~``, ``A~^2``, ... at these pairs [e, powers].
        size: n.
        table: the same for all pairs [K n n, powers]; None where that is too large.
    """

    keys: Tensor
    values: Tensor
    size: int
    table: Tensor | None = None

    @staticmethod
    def of(clients: Sequence[ClientGraph], powers: int, device: torch.device) -> Proximity:
        """Compute all ``powers`` >= 1 on the CPU."""
        size = max(len(client.nodes) for client in clients)
        keys, values = [], []
        for k, client in enumerate(clients):
            whole = _powers(client.edge_index, len(client.nodes), powers)
            pairs = whole[-1].tocoo()  # self-loops: what a lower power reaches, a higher one does too
            keys.append((k * size + pairs.row.astype(np.int64)) * size + pairs.col)
            values.append(np.stack([np.asarray(power[pairs.row, pairs.col]).ravel() for power in whole], 1))
        order = torch.from_numpy(np.concatenate(keys)).sort()
        found = torch.from_numpy(np.concatenate(values)).float()[order.indices]
        table = None
        if len(clients) * size**2 * powers <= TABLE:
            table = torch.zeros(len(clients) * size**2, powers)
            table[order.values] = found
            table = table.to(device)
        return Proximity(order.values.to(device), found.to(device), size, table)

    def among(self, nodes: Tensor) -> Tensor:
        """Return the powers for all pairs (i, j) among the last axis of ``nodes`` [K, m, s]: [K, m, s, s, powers]."""
        client = torch.arange(len(nodes), device=nodes.device).view(-1, 1, 1, 1)
        wanted = (client * self.size + nodes.unsqueeze(3)) * self.size + nodes.unsqueeze(2)
        if self.table is not None:
            return self.table.index_select(0, wanted.flatten()).view(*wanted.shape, -1)
        place = torch.searchsorted(self.keys, wanted).clamp_(max=len(self.keys) - 1)
        return torch.where((self.keys[place] == wanted).unsqueeze(4), self.values[place], 0.0)


def _powers(edge_index: Tensor, num_nodes: int, powers: int) -> list[sp.csr_array]:
    row, column = edge_index.numpy()
    adjacency = sp.csr_array((np.ones(len(row)), (row, column)), shape=(num_nodes, num_nodes)) + sp.eye_array(num_nodes)
    scale = sp.diags_array(1 / np.sqrt(adjacency.sum(1)))
    base = sp.csr_array(scale @ adjacency @ scale)
    found = [base]
    for _ in range(powers - 1):
        found.append(sp.csr_array(found[-1] @ base))
    return found
