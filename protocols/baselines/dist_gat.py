"""DistGAT: a federated GAT that drops every cross-client edge (FedGAT's baseline, section 6; He et al. 2021).

Every client trains on its own subgraph and FedAvg averages the models. Attention is exact in every layer; the rest is
as in FedGAT. What is observed: the server sees every client's models, clients see the global ones. Features leave a
client only through models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Examples, Uploads
from fglaudit.federated.fedavg import Weighting
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.problem import gather_features
from fglaudit.federated.training import Optimizer
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.gat import unit_ball
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.fedgat.gat_plan import GatProtocol, attended_rows
from fglaudit.protocols.fedgat.gat_training import Bounds
from fglaudit.view import Observer


@dataclass(frozen=True)
class DistGAT(GatProtocol):
    """Federated GAT without cross-client edges; fields as in :class:`fglaudit.protocols.fedgat.fedgat.FedGAT`."""

    name: ClassVar[str] = "dist-gat"
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)

    layers: int = 2
    heads: int = 8
    hidden: int = 8
    output_heads: int = 1
    rounds: int = 150
    local_steps: int = 1
    participation: float = 1.0
    weighting: Weighting = "uniform"
    optimizer: Optimizer = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 5e-3
    dropout: float = 0.5
    feature_dropout: float = 0.5
    proximal: float = 0.0
    keep_optimizer: bool = True
    bounds: Bounds = "none"
    choice: Choice = "last"

    def examples(self, graph: FederatedGraph) -> Examples:
        return node_examples(graph, passes=self.averaging().passes(), hops=self.layers)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return replace(self.averaging().uploads(graph), mean=self.bounds == "none")

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, of which the server takes the mean."""
        return self.averaging().aggregates(graph, self.shape().layout(graph.num_features, graph.num_classes))

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """No message is about features."""
        return torch.empty(0, dtype=torch.long)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor]:
        """The rows within L hops of a client's training nodes, over its own edges alone."""
        return attended_rows(graph, [_alone(client) for client in clients], self.layers, "compute")

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [_alone(channel.prepare(graph.client(k))) for k in range(graph.num_clients)]
        x = unit_ball(gather_features(clients, graph.num_nodes).to(device))
        return self.train_exactly(graph, clients, x, channel, rng, federated=True)


def _alone(client: ClientGraph) -> ClientGraph:
    """Return the client's graph without its edges to other clients."""
    return client.keeping_cross(torch.zeros(client.boundary.shape[1], dtype=torch.bool))
