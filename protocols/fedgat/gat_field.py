"""Which rows each client computes in which layer of a GAT, and which rows it takes from other clients.

A row is a pair (client, node), coded ``client x N + node``. A client either computes the hidden outputs of its
neighbours at other clients itself (``remote: matrices``) or receives them (``remote: embeddings``, :class:`Exchange`).
Received rows are constants of its training, so gradients do not cross clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.gat import LayerEdges
from fglaudit.nn.sparse import row_starts


@dataclass(frozen=True)
class Grid:
    """Pairs (client, node), client by client and ascending, padded to ``size`` rows per client.

    Attributes:
        codes: ``client x N + node`` [n], ascending.
        place: padded position of every pair [n].
        size: rows per client, at least 1.
    """

    codes: Tensor
    place: Tensor
    size: int
    num_nodes: int

    @staticmethod
    def of(codes: Tensor, num_nodes: int, num_clients: int) -> Grid:
        """Lay out unique ascending ``codes`` [n]."""
        client = torch.div(codes, num_nodes, rounding_mode="floor")
        starts = row_starts(client, num_clients)
        size = max(1, int(starts.diff().max().item()))
        rank = torch.arange(len(codes), device=codes.device) - starts[client]
        return Grid(codes, client * size + rank, size, num_nodes)

    @property
    def node(self) -> Tensor:
        return self.codes % self.num_nodes

    @property
    def client(self) -> Tensor:
        return torch.div(self.codes, self.num_nodes, rounding_mode="floor")

    def find(self, codes: Tensor) -> Tensor:
        """Return the position in ``codes`` of each given code, -1 where it is not there."""
        if len(self.codes) == 0:
            return torch.full_like(codes, -1)
        position = torch.searchsorted(self.codes, codes).clamp(max=len(self.codes) - 1)
        return torch.where(self.codes[position] == codes, position, -1)


@dataclass(frozen=True)
class LaterLayer:
    """A layer after the first: its input grid is the own rows of the layer below followed by ``remote`` received rows.

    Attributes:
        edges: see :class:`fglaudit.nn.gat.LayerEdges`.
        taken: rows of the :class:`Exchange` that it reads [q].
        remote_place: where they go in the padded [K, remote_size] part of the input.
    """

    edges: LayerEdges
    taken: Tensor
    remote_place: Tensor
    remote_size: int


@dataclass(frozen=True)
class Field:
    """The receptive field of some target nodes, as far as the targets' owners compute it.

    Attributes:
        outputs: own rows computed per layer; the last are the targets.
        inputs: pairs (client, node) whose features layer 1 reads where it is evaluated edge by edge.
        first: layer 1's edges among ``inputs``.
        later: the other layers.
        labels, mask: [K, R_L].
    """

    outputs: tuple[Grid, ...]
    inputs: Grid
    first: LayerEdges
    later: tuple[LaterLayer, ...]
    labels: Tensor
    mask: Tensor

    @property
    def counts(self) -> Tensor:
        """Targets per client [K]."""
        return self.mask.sum(1)


@dataclass(frozen=True)
class Exchange:
    """Rows of one layer's output that cross between clients: message after message, by (sender, receiver).

    Attributes:
        senders, receivers: [P].
        splits: [P + 1].
        node: [Q].
        codes: ``sender x N + node`` of every row in the messages [Q].
        rows: ``receiver x N + node`` of every row, as a sorted grid over receivers.
        order: position in the messages of every entry of ``rows`` [Q].
    """

    senders: Tensor
    receivers: Tensor
    splits: Tensor
    node: Tensor
    codes: Tensor
    rows: Grid
    order: Tensor

    @staticmethod
    def of(pairs: Tensor, owner: Tensor, num_clients: int) -> Exchange:
        """Plan the messages for unique ascending codes ``pairs`` [Q] = receiver x N + node."""
        num_nodes = len(owner)
        receiver, node = torch.div(pairs, num_nodes, rounding_mode="floor"), pairs % num_nodes
        message, by_message = torch.sort(owner[node] * num_clients + receiver, stable=True)
        used, counts = torch.unique_consecutive(message, return_counts=True)
        splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).cpu()
        order = torch.empty_like(by_message)
        order[by_message] = torch.arange(len(pairs), device=pairs.device)
        senders, receivers = torch.div(used, num_clients, rounding_mode="floor").cpu(), (used % num_clients).cpu()
        node = node[by_message]
        rows = Grid.of(pairs, num_nodes, num_clients)
        return Exchange(senders, receivers, splits, node, owner[node] * num_nodes + node, rows, order)


@dataclass(frozen=True)
class Clients:
    """Disjoint clients: kept edges with self-loops, labels [N], number of clients."""

    edges: KeptEdges
    labels: Tensor
    num_clients: int

    def own(self, nodes: Tensor) -> Tensor:
        """Return the ascending codes of the ``nodes`` (mask [N]) at their owners."""
        ids = nodes.nonzero().squeeze(1)
        return (self.edges.owner[ids] * len(nodes) + ids).sort().values

    def into(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return (position in ``codes``, code of the source at the same client) of all edges into the rows."""
        num_nodes = len(self.edges.owner)
        position, source = self.edges.incoming(codes % num_nodes)
        return position, torch.div(codes, num_nodes, rounding_mode="floor")[position] * num_nodes + source

    def at_owner(self, codes: Tensor) -> Tensor:
        """Return the codes of the same nodes at their owners."""
        node = codes % len(self.edges.owner)
        return self.edges.owner[node] * len(self.edges.owner) + node

    def needed(self, targets: Tensor, layers: int, cross: str) -> list[Tensor]:
        """Return the rows computed in layers 1 ... L for the outputs of ``targets``, all as codes.

        Args:
            cross: how a neighbour at another client is treated: the client computes it ("compute"), its owner does
                ("owner"), or it is left out ("leave").
        """
        rows = [targets]
        for _ in range(layers - 1):
            _, wanted = self.into(rows[0])
            if cross == "owner":
                wanted = self.at_owner(wanted)
            elif cross == "leave":
                wanted = wanted[self.at_owner(wanted) == wanted]
            rows.insert(0, torch.unique(torch.cat([rows[0], wanted])))
        return rows

    def exchanges(self, rows: Sequence[Tensor]) -> tuple[Exchange, ...]:
        """Plan the messages after layers 1 ... L-1 for ``rows`` from :meth:`needed` with "owner"."""
        planned = []
        for codes in rows[1:]:
            wanted = torch.unique(self.into(codes)[1])
            planned.append(Exchange.of(wanted[self.at_owner(wanted) != wanted], self.edges.owner, self.num_clients))
        return tuple(planned)

    def field(self, rows: Sequence[Tensor], exchanges: Sequence[Exchange]) -> Field:
        """Lay out the computation of the ``rows`` of layers 1 ... L; all other neighbours are received."""
        num_nodes = len(self.edges.owner)
        outputs = [Grid.of(codes, num_nodes, self.num_clients) for codes in rows]
        position, wanted = self.into(rows[0])
        inputs = Grid.of(torch.unique(wanted), num_nodes, self.num_clients)
        center = inputs.place[inputs.find(rows[0])][position]
        first = LayerEdges(outputs[0].place[position], center, inputs.place[inputs.find(wanted)], outputs[0].size)
        later = [
            self._later(outputs[layer - 1], outputs[layer], exchanges[layer - 1] if exchanges else None)
            for layer in range(1, len(rows))
        ]
        labels = self.labels.new_zeros(self.num_clients * outputs[-1].size)
        labels[outputs[-1].place] = self.labels[outputs[-1].node]
        mask = torch.zeros_like(labels, dtype=torch.bool).index_fill(0, outputs[-1].place, True)
        shape = (self.num_clients, outputs[-1].size)
        return Field(tuple(outputs), inputs, first, tuple(later), labels.view(shape), mask.view(shape))

    def _later(self, below: Grid, above: Grid, exchange: Exchange | None) -> LaterLayer:
        position, wanted = self.into(above.codes)
        own_place = below.find(wanted)
        cross = own_place < 0
        remote = Grid.of(torch.unique(wanted[cross]), below.num_nodes, self.num_clients)
        width = below.size + remote.size

        def in_input(place: Tensor, size: int, offset: int) -> Tensor:
            """Move padded places of a part to the joint input grid."""
            return torch.div(place, size, rounding_mode="floor") * width + offset + place % size

        source_place = torch.empty_like(wanted)
        source_place[~cross] = in_input(below.place[own_place[~cross]], below.size, 0)
        source_place[cross] = in_input(remote.place[remote.find(wanted[cross])], remote.size, below.size)
        center = in_input(below.place[below.find(above.codes)], below.size, 0)[position]
        edges = LayerEdges(above.place[position], center, source_place, above.size)
        taken = remote.place[:0] if exchange is None else exchange.order[exchange.rows.find(remote.codes)]
        return LaterLayer(edges, taken, remote.place, remote.size)
