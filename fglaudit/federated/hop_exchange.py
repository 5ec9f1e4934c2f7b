"""Propagation over the whole graph where every client holds the rows of its own nodes alone.

One step is ``S <- A S`` over closed neighbourhoods, ``A_ij = 1 / sqrt((d_i + 1)(d_j + 1))`` with degrees in the whole
graph. Before a step, the owner of every node with a neighbour at another client sends the node's row to the server,
which passes it on to the clients of those neighbours. Nothing else travels. Rows that are public need not be sent.

What is observed: the server sees the rows of all nodes with cross-client edges after every step, a client those of its
remote neighbours. The rows of one step are linear in those of the step before, with the edges as coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.sending import from_server, to_server
from fglaudit.interfaces import Channel
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import ClassReports, HopSums, Payload
from fglaudit.sparse_tensors import csr

Made = Callable[[Tensor, Tensor], Payload]
"""Makes a payload of node ids [rows] and rows [rows, D]: ``HopSums`` or ``ClassReports``."""


@dataclass(frozen=True)
class HopExchange:
    """Who needs whose rows for a step, and the step itself.

    Attributes:
        step: one step as a sparse matrix [N, N + R]: from own rows, and from the R rows that clients receive.
        client, node: the receiver of each of these [R], by client, and the remote neighbour that it is about.
        sent: nodes whose rows are sent [B], by owner; ``owner`` [B] are these.
        num_clients: K.
    """

    step: Tensor
    client: Tensor
    node: Tensor
    sent: Tensor
    owner: Tensor
    num_clients: int

    @staticmethod
    def of(edges: KeptEdges, num_clients: int) -> HopExchange:
        """Set up the exchange over ``edges``."""
        count = len(edges.owner)
        row, source, scale = edges.receivers().long(), edges.source.long(), edges.scale()
        away = edges.owner[row] != edges.owner[source]
        codes = edges.owner[row[away]] * count + source[away]
        wanted = torch.unique(codes)
        column = source.clone()
        column[away] = count + torch.searchsorted(wanted, codes)
        step = csr(edges.start, column, (scale[row] * scale[source]).float(), count + len(wanted))
        node = wanted % count
        sent = torch.unique(node)
        sent = sent[torch.argsort(edges.owner[sent], stable=True)]
        client = torch.div(wanted, count, rounding_mode="floor")
        return HopExchange(step, client, node, sent, edges.owner[sent], num_clients)

    def deliver(self, rows: Tensor, channel: Channel, round: int) -> Tensor:
        """Have owners send ``HopSums`` of ``rows`` [N, D] in ``round``; return what the clients receive [R, D]."""
        if len(self.sent) == 0:
            return rows[:0]
        senders = torch.arange(self.num_clients)
        splits = row_starts(self.owner.cpu(), self.num_clients)
        payload = HopSums(self.sent.cpu(), rows[self.sent])
        held = rows.new_zeros(rows.shape)
        held[self.sent] = to_server(channel, round, senders, payload, splits).sums.to(rows)
        return self.pass_on(held, channel, round, HopSums)

    def pass_on(self, held: Tensor, channel: Channel, round: int, made: Made) -> Tensor:
        """Have the server send what it holds of every node, ``held`` [N, D], to those who need it [R, D]."""
        receivers = torch.arange(self.num_clients)
        splits = row_starts(self.client.cpu(), self.num_clients)
        payload = made(self.node.cpu(), held[self.node])
        return _rows(from_server(channel, round, receivers, payload, splits)).to(held)

    def public(self, rows: Tensor) -> Tensor:
        """Return what clients know of public ``rows`` [N, D] without a message [R, D]."""
        return rows[self.node]

    def steps(
        self, rows: Tensor, received: Tensor, hops: Sequence[int], channel: Channel, first: int = 0
    ) -> list[Tensor]:
        """Propagate ``rows`` [N, D], of which the clients have ``received`` [R, D] those of their remote neighbours.

        Args:
            hops: after how many steps a result is wanted, ascending, from 1.
            first: the round in which rows after the first step are sent; those after a later one are sent in a later
                round, so that a recorder can keep the first ones alone.

        Returns:
            The rows [N, D] after each of ``hops``; node i's is held by its owner.
        """
        found = []
        for hop in range(1, max(hops) + 1):
            rows = self.step @ torch.cat([rows, received])
            if hop in hops:
                found.append(rows)
            if hop < max(hops):
                received = self.deliver(rows, channel, first + hop - 1)
        return found


def _rows(payload: Payload) -> Tensor:
    assert isinstance(payload, HopSums | ClassReports)
    return payload.sums if isinstance(payload, HopSums) else payload.values
