"""Local-only GCN: every client trains alone on its own subgraph, the other end of the scale from the centralized GCN.

Nothing is sent. Edges to other clients are ignored and degrees are those of the own subgraph, as in FedGCN with 0 hops,
but models are never averaged. All clients start from the same weights. A client without training nodes keeps a model
that learned nothing; its test nodes count all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Examples
from fglaudit.errors import FglauditError
from fglaudit.federated.problem import Problem, check_trainable
from fglaudit.federated.training import LocalModels, LocalSettings, accuracies, hits
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.rng import split


@dataclass(frozen=True)
class LocalGCN(FederatedProtocol):
    """Local-only GCN; fields as in :class:`fglaudit.protocols.fedgcn.FedGCN`."""

    name: ClassVar[str] = "local-gcn"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    layers: int = 2
    hidden: int = 16
    rounds: int = 300
    local_steps: int = 3
    optimizer: str = "sgd"
    learning_rate: float = 0.5
    weight_decay: float = 5e-4
    dropout: float = 0.5

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "rounds", "local_steps"):
            if getattr(self, field) < 1:
                raise FglauditError(f"local-gcn needs {field} >= 1; got {getattr(self, field)}; raise it")
        self.settings()

    def settings(self) -> LocalSettings:
        return LocalSettings(self.optimizer, self.learning_rate, self.weight_decay, self.dropout)

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def examples(self, graph: FederatedGraph) -> Examples:
        return node_examples(graph, passes=self.rounds * self.local_steps, hops=self.layers, by_degree=True)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        initial, dropout = split(rng, "weights"), split(rng, "dropout")
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        problem = Problem.local(clients, graph.degrees(), device)
        train, test = problem.fields(problem.own_sums(graph.x.to(device), self.layers), self.layers)
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, self.layers)
        noise = torch.Generator(device).manual_seed(dropout.initial_seed())
        start = glorot(layout, initial).to(device).expand(graph.num_clients, -1)
        models = LocalModels(start, layout, train, self.settings(), noise, channel.local_update())
        correct = []
        for round in range(1, self.rounds + 1):
            models.step(self.local_steps)
            correct.append(hits(test, models.vectors(), layout).sum(1))
            channel.round_done(round, self.rounds)
        accuracy, accuracy_global = accuracies(correct, test.counts)
        weights = {name: weight.cpu() for name, weight in unflatten(models.vectors(), layout).items()}
        return Trained(accuracy, accuracy_global, weights, layout)
