"""Centralized GAT (Velickovic et al., ICLR 2018): one model trained on the whole graph, the line to which FedGAT is
compared.

Nothing is sent: there is no wire in it, and no privacy either, since one party holds everything. ``rounds`` are
evaluations, with ``local_steps`` gradient steps before each. Attention is exact in every layer. Feature rows are scaled
to norm at most 1 and weights kept within ``bounds`` as in FedGAT, so that the two differ in nothing but the federation
and the series. Accuracy per client is the one model's accuracy on that client's test nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Examples
from fglaudit.federated.fedavg import FedAvg
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import pooled
from fglaudit.federated.training import LocalSettings
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.gat import GatShape, initial_model, softmax_scores, unit_ball
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.fedgat.gat_plan import Plan, check_graph, edge_layer
from fglaudit.protocols.fedgat.gat_training import GatSettings, GatTraining
from fglaudit.rng import split


@dataclass(frozen=True)
class GAT(FederatedProtocol):
    """Centralized GAT; fields as in :class:`fglaudit.protocols.fedgat.FedGAT`."""

    name: ClassVar[str] = "gat"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    layers: int = 2
    heads: int = 8
    hidden: int = 8
    output_heads: int = 1
    rounds: int = 150
    local_steps: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 5e-3
    dropout: float = 0.5
    feature_dropout: float = 0.5
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
        return FedAvg(self.rounds, self.local_steps, 1.0, "uniform", local)

    def settings(self) -> GatSettings:
        return GatSettings(0.0, True, self.bounds, self.feature_dropout, self.choice)

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        check_graph(self.name, graph)

    def examples(self, graph: FederatedGraph) -> Examples:
        return node_examples(graph, passes=self.averaging().passes(), hops=self.layers, pooled=True)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start, rest = split(rng, "weights"), split(rng, "rounds")
        whole = [channel.prepare(pooled(graph))]
        edges = KeptEdges.of(whole, graph.degrees()).to(device)
        x = unit_ball(graph.x.to(device))
        plan = Plan.of(whole, edges, self.layers, exchange=False)
        groups = graph.owner().clamp(min=0)
        problem = plan.problem(lambda field: edge_layer(field, x, softmax_scores, 1), groups, graph.num_clients)
        layout = self.shape().layout(graph.num_features, graph.num_classes)
        training = GatTraining(problem, self.averaging(), self.settings(), layout, channel)
        return training.run(initial_model(layout, start).to(x), rest, federated=False)
