"""Sums over neighbourhoods of rows that clients hold, added by the server: one hop of aggregation perturbation.

Client m sends, for every node i with a neighbour j of its own, ``sum over these j of h_j``; the server adds what
arrives and sends each node's total to its owner alone. A node's own row is not in its sum. Where edges are to be hidden
every client sends a row for every node, zeros where it has no neighbour of it: which rows are there then says nothing.

A node's row is used by at most ``most_uses`` of its neighbours, the first by a public pseudo-random priority of each
pair, so that it moves no more sums than that. This bounds what a row moves; it is no bound on what an edge moves,
because a neighbour that goes makes room for another.

What is observed: the server sees every client's sums, often one row alone, and all totals; a client the totals of its
own nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.context import Aggregate
from fglaudit.federated.neighbor_sums import add_messages, buckets
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.sending import from_server, to_server
from fglaudit.interfaces import Channel
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import EmbeddingSums
from fglaudit.privacy.degree_bound import pair_priorities


@dataclass(frozen=True)
class EmbeddingExchange:
    """Edges ``row <- source`` [E] over which rows are added, without self-loops.

    Attributes:
        owner: client of every node [N], -1 for none.
        num_clients: K.
        padded: whether every client sends a row for every node.
    """

    row: Tensor
    source: Tensor
    owner: Tensor
    num_clients: int
    padded: bool

    @staticmethod
    def of(edges: KeptEdges, num_clients: int, most_uses: int, *, padded: bool) -> EmbeddingExchange:
        """Set up the sums over ``edges``; a row is used at most ``most_uses`` times, 0: any number of times."""
        row, source = edges.receivers().long(), edges.source.long()
        others = row != source
        row, source = row[others], source[others]
        if most_uses:
            priority = pair_priorities(row, source, 0)
            order = torch.argsort(priority, stable=True)
            order = order[torch.argsort(source[order], stable=True)]
            rank = torch.empty_like(row)
            rank[order] = (
                torch.arange(len(row), device=row.device) - row_starts(source, len(edges.owner))[source[order]]
            )
            kept = rank < most_uses
            row, source = row[kept], source[kept]
        return EmbeddingExchange(row, source, edges.owner, num_clients, padded)

    def uses(self) -> int:
        """Return how many sums one node's row is in, at most."""
        return int(torch.bincount(self.source, minlength=1).max().item())

    def gain(self) -> float:
        """Return the joint L2 norm by which all sums of one hop move when one row changes by norm 1."""
        return math.sqrt(max(1, self.uses()))

    def owned(self) -> Tensor:
        """Return the nodes that have an owner, by owner, ascending within each."""
        nodes = (self.owner >= 0).nonzero().squeeze(1)
        return nodes[torch.argsort(self.owner[nodes], stable=True)]

    def total(self, rows: Tensor, channel: Channel, round: int) -> Tensor:
        """Have all clients send their sums of ``rows`` [N, D] in ``round``; return the totals [N, D] as their owners
        receive them."""
        sums: Tensor | None = None
        count, nodes = len(self.owner), self.owned()
        sender = self.owner[self.source]
        codes = torch.unique(sender * count + self.row)
        per_sender = torch.bincount(codes // count, minlength=self.num_clients)
        sizes = torch.full_like(per_sender, len(nodes)) if self.padded else per_sender
        for low, high in buckets(sizes.cpu() * rows.shape[1] * 4):
            senders = torch.arange(low, high, device=rows.device)
            if self.padded:
                sent = (senders.unsqueeze(1) * count + nodes).flatten()
                sent = sent.sort().values
            else:
                sent = codes[(codes >= low * count) & (codes < high * count)]
            used = (sender >= low) & (sender < high)
            place = torch.searchsorted(sent, sender[used] * count + self.row[used])
            parts = rows.new_zeros(len(sent), rows.shape[1]).index_add_(0, place, rows[self.source[used]])
            splits = row_starts((sent // count - low).cpu(), high - low)
            payload = EmbeddingSums(sent % count, parts)
            clients = senders.cpu()
            arrived = to_server(channel, round, clients, payload, splits)
            sums = add_messages(sums, arrived.nodes, arrived.sums, count)
        assert sums is not None
        return self._delivered(sums, nodes, rows, channel, round)

    def _delivered(self, sums: Tensor, nodes: Tensor, like: Tensor, channel: Channel, round: int) -> Tensor:
        """Have the server send every client the ``sums`` [N, D] of its own nodes; return them in place [N, D]."""
        receivers = torch.arange(self.num_clients)
        splits = row_starts(self.owner[nodes].cpu(), self.num_clients)
        payload = EmbeddingSums(nodes, sums[nodes].float())
        arrived = from_server(channel, round, receivers, payload, splits)
        found = torch.zeros_like(like)
        found[nodes] = arrived.sums.to(like)
        return found

    def aggregate(self, width: int, releases: int) -> Aggregate:
        """Return what the server does with the sums of rows of norm at most 1, ``width`` numbers each."""
        nodes, count = self.owned(), len(self.owner)
        if self.padded:  # edges are not public, and so no degree is
            terms = torch.full((count,), count - 1, dtype=torch.float64)
            summands = torch.full((count,), self.num_clients)
        else:
            terms = torch.bincount(self.row, minlength=count).double()
            pairs = torch.unique(self.row * self.num_clients + self.owner[self.source])
            summands = torch.bincount(pairs // self.num_clients, minlength=count)
        return Aggregate(nodes, self.owner[nodes], width, terms, summands, releases=releases)
