"""DistGAT: a federated GAT that drops every cross-client edge (FedGAT's baseline, section 6; He et al. 2021).

Every client trains on its own subgraph, FedAvg averages the models. Attention is exact in every layer; the rest is as
in FedGAT. What is observed: the server has every client's models, clients have the global ones. Features leave a client
only through models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fglaudit.context import Aggregate, Examples, Uploads
from fglaudit.federated.fedavg import FedAvg
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import gather_features
from fglaudit.federated.training import LocalSettings
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.gat import GatShape, initial_model, softmax_scores, unit_ball
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.fedgat.gat_plan import Plan, check_graph, edge_layer
from fglaudit.protocols.fedgat.gat_training import GatSettings, GatTraining
from fglaudit.rng import split
from fglaudit.view import Observer


@dataclass(frozen=True)
class DistGAT(FederatedProtocol):
    """Federated GAT without cross-client edges; fields as in :class:`fglaudit.protocols.fedgat.FedGAT`."""

    name: ClassVar[str] = "dist-gat"
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)

    layers: int = 2
    heads: int = 8
    hidden: int = 8
    output_heads: int = 1
    rounds: int = 150
    local_steps: int = 1
    participation: float = 1.0
    weighting: str = "uniform"
    optimizer: str = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 5e-3
    dropout: float = 0.5
    feature_dropout: float = 0.5
    proximal: float = 0.0
    keep_optimizer: bool = True
    bounds: str = "none"
    choice: str = "last"

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
        return GatSettings(self.proximal, self.keep_optimizer, self.bounds, self.feature_dropout, self.choice)

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        check_graph(self.name, graph)

    def examples(self, graph: FederatedGraph) -> Examples:
        return node_examples(graph, passes=self.averaging().passes(), hops=self.layers)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return replace(self.averaging().uploads(graph), mean=self.bounds == "none")

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, of which the server takes the mean."""
        return self.averaging().aggregates(graph, self.shape().layout(graph.num_features, graph.num_classes))

    def exposed(self, graph: FederatedGraph, observer: Observer) -> torch.Tensor:
        """No message is about features."""
        return torch.empty(0, dtype=torch.long)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start, rest = split(rng, "weights"), split(rng, "rounds")
        clients = [_alone(channel.prepare(graph.client(k))) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        x = unit_ball(gather_features(clients, graph.num_nodes).to(device))
        plan = Plan.of(clients, edges, self.layers, exchange=False)

        groups = edges.owner.clamp(min=0)
        num_clients = graph.num_clients
        problem = plan.problem(lambda field: edge_layer(field, x, softmax_scores, num_clients), groups, num_clients)
        layout = self.shape().layout(graph.num_features, graph.num_classes)
        training = GatTraining(problem, self.averaging(), self.settings(), layout, channel)
        return training.run(initial_model(layout, start).to(x), rest, federated=True)


def _alone(client: ClientGraph) -> ClientGraph:
    """Return the client's graph without its edges to other clients."""
    remote_degrees = None if client.remote_degrees is None else client.remote_degrees[:0]
    none = client.remote_nodes[:0]
    return replace(client, boundary=client.boundary[:, :0], remote_nodes=none, remote_degrees=remote_degrees)
