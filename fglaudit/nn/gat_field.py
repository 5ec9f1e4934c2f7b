"""Which rows each client computes in which layer of a GAT, and which rows it takes from other clients.

Layer l's outputs are computed by the owner of a node alone. The next layer at client k also reads its neighbours at other clients:
those rows are received (:class:`Exchange`) and constant in training, so gradients do not cross clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.gat import LayerEdges
from fglaudit.nn.neighborhood import KeptEdges
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

    def _into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        position, source = self.edges.incoming(nodes)
        return nodes[position], source

    def everything_needed(self, targets: Tensor, layers: int) -> list[Tensor]:
        """Return, for layers 1 ... L, the mask [N] of nodes whose outputs ``targets`` [N] depend on, whoever owns them."""
        masks = [targets]
        for _ in range(layers - 1):
            below = masks[0].clone()
            below[self._into(masks[0].nonzero().squeeze(1))[1]] = True
            masks.insert(0, below)
        return masks

    def own_needed(self, targets: Tensor, layers: int) -> list[Tensor]:
        """The same, going down through edges within a client alone."""
        masks = [targets]
        for _ in range(layers - 1):
            node, source = self._into(masks[0].nonzero().squeeze(1))
            below = masks[0].clone()
            below[source[self.edges.owner[node] == self.edges.owner[source]]] = True
            masks.insert(0, below)
        return masks

    def exchanges(self, masks: Sequence[Tensor]) -> tuple[Exchange, ...]:
        """Plan the messages after layers 1 ... L-1 for outputs ``masks`` from :meth:`everything_needed`."""
        owner, planned = self.edges.owner, []
        for mask in masks[1:]:
            node, source = self._into(mask.nonzero().squeeze(1))
            cross = owner[node] != owner[source]
            codes = torch.unique(owner[node[cross]] * len(owner) + source[cross])
            planned.append(Exchange.of(codes, owner, self.num_clients))
        return tuple(planned)

    def field(self, masks: Sequence[Tensor], exchanges: Sequence[Exchange]) -> Field:
        """Lay out the computation of the outputs ``masks`` [N] of layers 1 ... L by their owners."""
        owner, num_nodes = self.edges.owner, len(self.edges.owner)
        nodes = [mask.nonzero().squeeze(1) for mask in masks]
        outputs = [Grid.of((owner[n] * num_nodes + n).sort().values, num_nodes, self.num_clients) for n in nodes]
        node, source = self._into(nodes[0])
        inputs = Grid.of(torch.unique(owner[node] * num_nodes + source), num_nodes, self.num_clients)
        target = outputs[0].place[outputs[0].find(owner[node] * num_nodes + node)]
        center = inputs.place[inputs.find(owner[node] * num_nodes + node)]
        first = LayerEdges(target, center, inputs.place[inputs.find(owner[node] * num_nodes + source)], outputs[0].size)
        later = [
            self._later(outputs[layer - 1], outputs[layer], nodes[layer], exchanges[layer - 1]) for layer in range(1, len(masks))
        ]
        labels = self.labels.new_zeros(self.num_clients * outputs[-1].size)
        labels[outputs[-1].place] = self.labels[outputs[-1].node]
        mask = torch.zeros_like(labels, dtype=torch.bool).index_fill(0, outputs[-1].place, True)
        shape = (self.num_clients, outputs[-1].size)
        return Field(tuple(outputs), inputs, first, tuple(later), labels.view(shape), mask.view(shape))

    def _later(self, below: Grid, above: Grid, nodes: Tensor, exchange: Exchange) -> LaterLayer:
        owner, num_nodes = self.edges.owner, below.num_nodes
        node, source = self._into(nodes)
        wanted = owner[node] * num_nodes + source
        cross = owner[node] != owner[source]
        remote = Grid.of(torch.unique(wanted[cross]), num_nodes, self.num_clients)
        width = below.size + remote.size

        def in_input(place: Tensor, size: int, offset: int) -> Tensor:
            """Move padded places of a part to the joint input grid."""
            return torch.div(place, size, rounding_mode="floor") * width + offset + place % size

        own_place, remote_place = below.find(wanted), remote.find(wanted)
        source_place = torch.empty_like(wanted)
        source_place[~cross] = in_input(below.place[own_place[~cross]], below.size, 0)
        source_place[cross] = in_input(remote.place[remote_place[cross]], remote.size, below.size)
        codes = owner[node] * num_nodes + node
        center = in_input(below.place[below.find(codes)], below.size, 0)
        edges = LayerEdges(above.place[above.find(codes)], center, source_place, above.size)
        taken = exchange.order[exchange.rows.find(remote.codes)]
        return LaterLayer(edges, taken, remote.place, remote.size)
