"""The data of K disjoint clients in training: their rows, the edges they know, their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.neighbor_sums import local_sums
from fglaudit.federated.neighborhood import HeldRows, KeptEdges, local_degrees, mean_weights, symmetric_weights
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.nn.gcn import Field, Propagation, build_field, needed_rows
from fglaudit.nn.networks import GCN, Network
from fglaudit.nn.shared_rows import SharedRows


def check_trainable(protocol: str, graph: FederatedGraph) -> None:
    """Raise :class:`FglauditError` unless nodes have one feature row, clients are disjoint and one can train."""
    check_feature_rows(protocol, graph)
    graph.owner()
    check_training(protocol, graph)


def check_feature_rows(protocol: str, graph: FederatedGraph) -> None:
    """Raise :class:`FglauditError` unless every node has one feature row."""
    if graph.x.dim() != 2:
        raise FglauditError(
            f"{protocol} needs one feature row per node, [N, F]; {graph.name!r} has features of shape"
            f" {tuple(graph.x.shape)}; use a data set with one sample per node"
        )


def check_training(protocol: str, graph: FederatedGraph, unit: str = "nodes") -> None:
    """Raise :class:`FglauditError` unless some client has training nodes, called ``unit`` in the message."""
    if not any(bool(train.any()) for train in graph.train):
        raise FglauditError(
            f"{protocol} needs training {unit}; of {graph.name!r} none of {graph.num_clients} clients, which share"
            f" {graph.num_nodes} nodes, has any; use fewer clients, or another split or seed"
        )


def gather_features(clients: Sequence[ClientGraph], num_nodes: int) -> Tensor:
    """Return the clients' own features as [N, F]; rows of nodes without a client are 0."""
    x = torch.zeros(num_nodes, clients[0].x.shape[1], dtype=clients[0].x.dtype)
    for client in clients:
        x[client.nodes] = client.x
    return x


def pooled(graph: FederatedGraph) -> ClientGraph:
    """Return all clients' nodes as the graph of one client; clients must be disjoint."""
    nodes, order = torch.sort(torch.cat(graph.clients))
    masks = [torch.cat(parts)[order] for parts in (graph.train, graph.val, graph.test)]
    one = replace(graph, clients=(nodes,), train=(masks[0],), val=(masks[1],), test=(masks[2],))
    return one.client(0)


@dataclass(frozen=True)
class Targets:
    """What disjoint clients train and test on, by node [N]: labels, 0 for nodes of no client, and masks."""

    labels: Tensor
    train: Tensor
    test: Tensor

    @staticmethod
    def of(clients: Sequence[ClientGraph], num_nodes: int) -> Targets:
        labels = torch.zeros(num_nodes, dtype=torch.long)
        train, test = (torch.zeros(num_nodes, dtype=torch.bool) for _ in range(2))
        for client in clients:
            labels[client.nodes], train[client.nodes], test[client.nodes] = client.y, client.train, client.test
        return Targets(labels, train, test)


@dataclass(frozen=True)
class Gathered:
    """What disjoint clients start from, by node: whoever has it needs no client's graph any more.

    Attributes:
        x: features [N, F], each row from the (prepared) graph of its owner.
    """

    edges: KeptEdges
    x: Tensor
    targets: Targets
    num_clients: int

    @staticmethod
    def of(clients: Sequence[ClientGraph], degrees: Tensor, device: torch.device) -> Gathered:
        """Gather the (prepared) client graphs; ``degrees`` [N] are those of the whole graph."""
        edges, x = KeptEdges.of(clients, degrees).to(device), gather_features(clients, len(degrees)).to(device)
        return Gathered(edges, x, Targets.of(clients, len(degrees)), len(clients))


@dataclass(frozen=True)
class Problem:
    """Rows of all clients and the computation on them.

    Attributes:
        rows: for which nodes each client holds an input row.
        propagation: the layers after the first.
        labels: [M].
        train, test: masks [M], own rows only.
        whole: whether hidden layers are computed of all rows, not only of those that outputs depend on; batch
            normalisation takes their mean.
    """

    rows: HeldRows
    propagation: Propagation
    labels: Tensor
    train: Tensor
    test: Tensor
    whole: bool = False

    @staticmethod
    def of(clients: Sequence[ClientGraph], edges: KeptEdges, hops: int, network: Network = GCN) -> Problem:
        """Set up training with sums over ``hops`` hops, see :meth:`among`; rows up to ``hops - 1`` hops away are
        held."""
        rows = HeldRows.within(edges, len(clients), max(hops - 1, 0))
        return Problem.among(Targets.of(clients, len(edges.owner)), edges, rows, hops, network=network)

    @staticmethod
    def among(
        targets: Targets,
        edges: KeptEdges,
        rows: HeldRows,
        hops: int,
        layers: int | None = None,
        network: Network = GCN,
    ) -> Problem:
        """Set up training with sums over ``hops`` hops on the ``rows`` of some clients.

        With ``hops >= 1`` a client knows the edges with an end at most ``hops - 2`` hops away (of its own edges always
        those among its rows), and degrees in the whole graph. With 0 hops it uses its own subgraph alone, degrees
        included.

        Args:
            layers: of the model, where edges that no output depends on may be left out; None keeps all.
        """
        reach = None if layers is None or network.batch_norm else max(layers - 2, 0)
        row, column = rows.known_edges(edges, max(hops - 2, 0), reach)
        degrees = edges.degrees[rows.node] if hops > 0 else local_degrees(row, column, len(rows.node))
        return Problem.on(targets, rows, row, column, degrees, network)

    @staticmethod
    def on(
        targets: Targets, rows: HeldRows, row: Tensor, column: Tensor, degrees: Tensor, network: Network = GCN
    ) -> Problem:
        """Set up training on M ``rows`` with edges ``row <- column`` [e] among them, normalised by ``degrees`` [M]."""
        own, node, device = rows.distance == 0, rows.node, rows.node.device
        weight = mean_weights(row, degrees) if network.means else symmetric_weights(row, column, degrees)
        num_clients = len(rows.splits) - 1
        return Problem(
            rows=rows,
            propagation=Propagation(row, column, weight, rows.client, num_clients),
            labels=targets.labels.to(device)[node],
            train=targets.train.to(device)[node] & own,
            test=targets.test.to(device)[node] & own,
            whole=network.batch_norm,
        )

    @staticmethod
    def local(clients: Sequence[ClientGraph], degrees: Tensor, device: torch.device, network: Network = GCN) -> Problem:
        """Set up training on the clients' own subgraphs alone; ``degrees`` [N] are those of the whole graph."""
        return Problem.of(clients, KeptEdges.of(clients, degrees).to(device), 0, network)

    def own_sums(self, x: Tensor, layers: int) -> Tensor:
        """Return the first-layer input [H, F] of the :meth:`needed` rows where no sums are exchanged; ``x`` [N, F]."""
        edges = self.propagation
        sums = local_sums(edges.row, edges.column, edges.weight.double(), x[self.rows.node])
        return sums[self.needed(layers)]

    def needed(self, layers: int) -> Tensor:
        """Return the mask [M] of rows whose input training or testing uses."""
        return self.reached(self.train, layers)[0] | self.reached(self.test, layers)[0]

    def reached(self, targets: Tensor, layers: int) -> list[Tensor]:
        """Return, for layers 1 ... L, the mask [M] of rows that are computed for the ``targets`` [M]."""
        if self.whole:
            return [*[torch.ones_like(targets)] * (layers - 1), targets]
        return needed_rows(self.propagation, targets, layers)

    def fields(self, inputs: Tensor | SharedRows, layers: int) -> tuple[Field, Field]:
        """Return the receptive fields of the training and of the test nodes.

        Args:
            inputs: first-layer input [H, F] of the :meth:`needed` rows, in their order.
        """
        position = self.needed(layers).long().cumsum(0) - 1
        train, test = (
            build_field(self.propagation, inputs, position, self.reached(targets, layers), self.labels)
            for targets in (self.train, self.test)
        )
        return train, test
