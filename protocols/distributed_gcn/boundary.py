"""Copies of remote neighbours: who sends which rows to whom, forwards and back.

A copy is a pair (client, node) of a client and a neighbour at another client of one of its nodes. Copies are ordered by
the node's owner, then by client, so that a message holds consecutive ones. Who sends what is known on the host: nothing
here waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.sending import send
from fglaudit.interfaces import Channel
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.payloads import Payload
from fglaudit.sparse_tensors import csr

Made = Callable[[Tensor, Tensor], Payload]
"""Makes a payload of node ids [rows] and values [rows, D]."""


@dataclass(frozen=True)
class Sample:
    """Some copies, as messages.

    Attributes:
        place: of each of them among all copies [u], on the device.
        nodes: theirs [u]; owners, clients: the ends of every message [P]; splits: [P + 1]; all on the host.
    """

    place: Tensor
    nodes: Tensor
    owners: Tensor
    clients: Tensor
    splits: Tensor


@dataclass(frozen=True)
class Boundary:
    """The copies of all clients, and the propagation into own nodes.

    Attributes:
        client, node, owner: of every copy [R], on the host.
        source: the nodes once more [R], on the device.
        row, column: every edge [e] on the device, ordered by row: a node, and a node (below N) or N + place of a copy.
        weight: ``1 / sqrt((d_i + 1)(d_j + 1))`` [e], degrees those of the whole graph.
        by_column: the order [e] of the edges by column.
        num_nodes, num_clients: N, K.
    """

    client: Tensor
    node: Tensor
    owner: Tensor
    source: Tensor
    row: Tensor
    column: Tensor
    weight: Tensor
    by_column: Tensor
    num_nodes: int
    num_clients: int

    @staticmethod
    def of(edges: KeptEdges, num_clients: int, device: torch.device) -> Boundary:
        """Collect the copies that the clients' edges need."""
        count, owner = len(edges.owner), edges.owner
        row, source, scale = edges.receivers().long(), edges.source.long(), edges.scale()
        away = owner[row] != owner[source]
        codes = (owner[source[away]] * num_clients + owner[row[away]]) * count + source[away]
        copies, place = torch.unique(codes, return_inverse=True)
        column = source.clone()
        column[away] = count + place
        pair, node = torch.div(copies, count, rounding_mode="floor"), copies % count
        return Boundary(
            client=pair % num_clients,
            node=node,
            owner=torch.div(pair, num_clients, rounding_mode="floor"),
            source=node.to(device),
            row=row.to(device),
            column=column.to(device),
            weight=(scale[row] * scale[source]).float().to(device),
            by_column=torch.argsort(column, stable=True).to(device),
            num_nodes=count,
            num_clients=num_clients,
        )

    def sample(self, used: Tensor) -> Sample:
        """Return the copies where ``used`` [R], a mask on the host, is true."""
        place = used.nonzero().squeeze(1)
        pairs, counts = torch.unique_consecutive(
            self.owner[place] * self.num_clients + self.client[place], return_counts=True
        )
        splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        ends = pairs // self.num_clients, pairs % self.num_clients
        return Sample(place.to(self.source.device), self.node[place], *ends, splits)

    def propagation(self, sample: Sample, rate: float) -> SparseMatrix:
        """Return the map [N, N + R] from own rows and copies to sums over closed neighbourhoods.

        Copies of ``sample`` count 1 / ``rate`` times, so that sums are right on average; others do not count.
        """
        width = self.num_nodes + len(self.node)
        factor = self.weight.new_ones(width)
        factor[self.num_nodes :] = 0
        factor.index_fill_(0, self.num_nodes + sample.place, 1 / rate)
        weight, back = self.weight * factor[self.column], self.by_column
        return SparseMatrix(
            csr(self._starts(self.row, self.num_nodes), self.column, weight, width),
            csr(self._starts(self.column[back], width), self.row[back], weight[back], self.num_nodes),
        )

    def _starts(self, rows: Tensor, count: int) -> Tensor:
        """Return where each of ``count`` rows starts in ascending ``rows`` [e], [count + 1]."""
        return torch.searchsorted(rows, torch.arange(count + 1, device=rows.device))

    def deliver(self, rows: Tensor, sample: Sample, made: Made, channel: Channel, round: int) -> Tensor:
        """Have owners send ``rows`` [N, D] to the clients of the copies of ``sample``; return what arrives [R, D],
        zeros where nothing does."""
        found = rows.new_zeros(len(self.node), rows.shape[1])
        if not len(sample.nodes):
            return found
        payload = made(sample.nodes, rows[self.source[sample.place]])
        arrived = send(channel, round, sample.owners, sample.clients, payload, sample.splits)
        return found.index_copy(0, sample.place, _values(arrived).to(found))

    def give_back(self, values: Tensor, sample: Sample, made: Made, channel: Channel, round: int) -> Tensor:
        """Have clients send ``values`` [R, D] of the copies of ``sample`` to the owners; return sums per node."""
        found = values.new_zeros(self.num_nodes, values.shape[1])
        if not len(sample.nodes):
            return found
        payload = made(sample.nodes, values[sample.place])
        arrived = send(channel, round, sample.clients, sample.owners, payload, sample.splits)
        return found.index_add_(0, self.source[sample.place], _values(arrived).to(found))


def _values(payload: Payload) -> Tensor:
    _, values = payload.tensors().values()
    return values
