"""What FedGAT and its baselines share: settings, checks, and the plan of fields, exchanges and masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.federated.fedavg import FedAvg, Weighting
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.problem import check_trainable
from fglaudit.federated.training import LocalSettings, Optimizer
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.gat import EdgeLayer, GatShape, Scores, initial_model, softmax_scores
from fglaudit.nn.gcn import client_inputs
from fglaudit.payloads import ModelUpdate
from fglaudit.protocols.fedgat.gat_field import Clients, Exchange, Field
from fglaudit.protocols.fedgat.gat_training import Bounds, FirstLayer, GatSettings, GatTraining, Part, Problem
from fglaudit.protocols.fedgat.server_adam import ServerOptimizer
from fglaudit.rng import split
from fglaudit.structure import Models, Structure, Training


def check_graph(protocol: str, graph: FederatedGraph) -> None:
    """Raise :class:`FglauditError` unless a GAT can be trained on ``graph``: disjoint clients, training nodes, finite
    features, every edge listed once in each direction and no self-loops (a GAT adds its own)."""
    check_trainable(protocol, graph)
    finite = torch.isfinite(graph.x).all(1)
    if not bool(finite.all()):
        node = int((~finite).nonzero()[0].item())
        raise FglauditError(f"{protocol} needs finite features; row {node} of {graph.name!r} is not; clean the data")
    row, column = graph.edge_index
    codes, counts = torch.unique(row * graph.num_nodes + column, return_counts=True)
    if bool((counts > 1).any()):
        code = int(codes[counts > 1][0].item())
        raise FglauditError(
            f"{protocol} counts every neighbour once; {graph.name!r} lists the edge {code // graph.num_nodes} - "
            f"{code % graph.num_nodes} more than once; build edge_index with fglaudit.graph.canonical_edges"
        )
    if bool((row == column).any()):
        node = int(row[row == column][0].item())
        raise FglauditError(
            f"{protocol} adds self-loops itself; {graph.name!r} has one at node {node}; build edge_index with "
            "fglaudit.graph.canonical_edges"
        )


def attended_rows(
    graph: FederatedGraph, clients: Sequence[ClientGraph], layers: int, cross: str
) -> tuple[Tensor, Tensor]:
    """Return whose first layers attend to which rows in training, as ``FederatedProtocol.layer_inputs`` does.

    Args:
        clients: with the edges that are trained with.
        cross: of edges to other clients' nodes, see ``Clients.needed``.
    """
    train = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for nodes, mask in zip(graph.clients, graph.train, strict=True):
        train[nodes[mask]] = True
    edges = KeptEdges.of(clients, graph.degrees())
    parties = Clients(edges, edges.owner, graph.num_clients)
    codes = torch.unique(parties.into(parties.needed(parties.own(train), layers, cross)[0])[1])
    return codes // graph.num_nodes, graph.x[codes % graph.num_nodes].float()


class GatProtocol(FederatedProtocol):
    """What FedGAT, DistGAT and the centralized GAT share.

    Subclasses are dataclasses that declare these fields themselves, because findings print fields in order of
    declaration. A field that a subclass does not declare keeps the value given here.
    """

    layers: int
    heads: int
    hidden: int
    output_heads: int
    domain: float = 2.0
    rounds: int
    local_steps: int
    participation: float = 1.0
    weighting: Weighting = "uniform"
    optimizer: Optimizer
    learning_rate: float
    weight_decay: float
    dropout: float
    feature_dropout: float
    proximal: float = 0.0
    keep_optimizer: bool = True
    bounds: Bounds
    choice: Choice
    server_optimizer: ServerOptimizer = "none"
    server_learning_rate: float = 0.01

    def __post_init__(self) -> None:
        self.shape()
        self.averaging()
        self.settings()

    def shape(self) -> GatShape:
        return GatShape(self.layers, self.heads, self.hidden, self.output_heads)

    def averaging(self) -> FedAvg:
        local = LocalSettings(self.optimizer, self.learning_rate, self.weight_decay, self.dropout)
        return FedAvg(self.rounds, self.local_steps, self.participation, self.weighting, local)

    def settings(self) -> GatSettings:
        return GatSettings(
            self.proximal, self.keep_optimizer, self.bounds, self.feature_dropout, self.choice, self.domain,
            self.server_optimizer, self.server_learning_rate,
        )  # fmt: skip

    def training(self) -> Training:
        """Return what attacks may know of the clients' training."""
        return replace(
            self.averaging().training(),
            feature_dropout=self.feature_dropout,
            proximal=self.proximal,
            keep_optimizer=self.keep_optimizer,
        )

    def structure(self, graph: FederatedGraph) -> Structure:
        training = self.training()
        return Structure((Models("weights"), training) if ModelUpdate in type(self).emits else (training,))

    def check(self, graph: FederatedGraph) -> None:
        check_graph(self.name, graph)

    def train_exactly(
        self,
        graph: FederatedGraph,
        clients: Sequence[ClientGraph],
        x: Tensor,
        channel: Channel,
        rng: torch.Generator,
        *,
        federated: bool,
    ) -> Trained:
        """Train with exact attention, every client on its own subgraph.

        Args:
            clients: prepared graphs without edges to other clients.
            x: features [N, F], scaled to the unit ball, on the device.
            federated: whether the clients' models are averaged; otherwise there is one client.
        """
        start, rest = split(rng, "weights"), split(rng, "rounds")
        edges = KeptEdges.of(clients, graph.degrees()).to(x.device)
        plan = Plan.of(clients, edges, self.layers, exchange=False)
        groups = graph.owner().clamp(min=0)
        problem = plan.problem(
            lambda field: edge_layer(field, x, softmax_scores, len(clients)), groups, graph.num_clients
        )
        layout = self.shape().layout(graph.num_features, graph.num_classes)
        training = GatTraining(problem, self.averaging(), self.settings(), layout, channel)
        return training.run(initial_model(layout, start).to(x), rest, federated=federated)


@dataclass(frozen=True)
class Plan:
    """Fields of the training nodes and of all others that count, before anything is known about features.

    Attributes:
        train, test: fields; ``test`` holds test and validation nodes and computes all rows that are exchanged.
        exchanges: after layers 1 ... L-1.
        is_test, is_validation: node masks [N].
    """

    train: Field
    test: Field
    exchanges: tuple[Exchange, ...]
    is_test: Tensor
    is_validation: Tensor

    @staticmethod
    def of(clients: Sequence[ClientGraph], edges: KeptEdges, layers: int, *, exchange: bool) -> Plan:
        """Lay out the training of disjoint ``clients`` on ``edges`` (with self-loops).

        Args:
            exchange: whether clients receive their neighbours' hidden embeddings instead of computing them.
        """
        device, num_nodes = edges.start.device, len(edges.owner)
        labels = torch.zeros(num_nodes, dtype=torch.long)
        train, val, test = (torch.zeros(num_nodes, dtype=torch.bool) for _ in range(3))
        for client in clients:
            labels[client.nodes] = client.y
            train[client.nodes], val[client.nodes], test[client.nodes] = client.train, client.val, client.test
        train, val, test = train.to(device), val.to(device), test.to(device)
        parties = Clients(edges, labels.to(device), len(clients))
        everyone = parties.needed(parties.own(train | val | test), layers, "owner")
        exchanges = parties.exchanges(everyone) if exchange else ()
        tested = parties.own(val | test)
        tested_rows = [*everyone[:-1], tested] if exchange else parties.needed(tested, layers, "compute")
        return Plan(
            train=parties.field(
                parties.needed(parties.own(train), layers, "leave" if exchange else "compute"), exchanges
            ),
            test=parties.field(tested_rows, exchanges),
            exchanges=exchanges,
            is_test=test,
            is_validation=val,
        )

    def problem(self, first: Callable[[Field], FirstLayer], groups: Tensor, num_groups: int) -> Problem:
        """Return what is trained, given how to evaluate a field's first layer.

        Args:
            groups: for every node [N] the client whose accuracy it counts for.
        """
        targets = self.test.outputs[-1]
        shape = self.test.mask.shape

        def on_grid(values: Tensor) -> Tensor:
            grid = values.new_zeros(shape.numel())
            return grid.index_copy(0, targets.place, values[targets.node]).view(shape)

        return Problem(
            train=Part(self.train, first(self.train)),
            test=Part(self.test, first(self.test)),
            exchanges=self.exchanges,
            is_test=on_grid(self.is_test),
            is_validation=on_grid(self.is_validation),
            groups=on_grid(groups.to(self.is_test.device)),
            num_groups=num_groups,
        )


def edge_layer(field: Field, x: Tensor, scores: Scores, num_clients: int) -> EdgeLayer:
    """Return the first layer evaluated edge by edge on ``x`` [N, F]."""
    grid = field.inputs
    inputs = client_inputs(x[grid.node], grid.place, grid.client, num_clients, grid.size)
    return EdgeLayer(inputs, grid.size, field.first, scores)
