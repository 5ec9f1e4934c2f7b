"""Centralized GCN (Kipf and Welling 2017): one model trained on the whole graph, the baseline of FedGCN.

Nothing is sent: one party holds all data. ``rounds`` are evaluations, with ``local_steps`` gradient steps before each.
Accuracy per client is the one model's accuracy on that client's test nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fglaudit.context import Examples
from fglaudit.errors import require_least
from fglaudit.federated.problem import Problem, check_trainable, pooled
from fglaudit.federated.training import UNLIKE_CITATIONS, LocalModels, LocalSettings, Optimizer, accuracies, hits
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.networks import NetworkName, network
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.rng import moved, split
from fglaudit.structure import Structure


@dataclass(frozen=True)
class GCN(FederatedProtocol):
    """Centralized GCN; fields as in :class:`fglaudit.protocols.fedgcn.fedgcn.FedGCN`."""

    name: ClassVar[str] = "gcn"
    emits: ClassVar[tuple[type[Payload], ...]] = ()
    pooled: ClassVar[bool] = True
    """Whether one party trains on all clients' nodes; otherwise every client trains a model of its own."""
    on_datasets: ClassVar[Mapping[str, Mapping[str, Any]]] = UNLIKE_CITATIONS

    network: NetworkName = "gcn"
    layers: int = 2
    hidden: int = 16
    rounds: int = 300
    local_steps: int = 1
    optimizer: Optimizer = "sgd"
    learning_rate: float = 0.5
    weight_decay: float = 5e-4
    dropout: float = 0.5

    def __post_init__(self) -> None:
        require_least(self, layers=1, hidden=1, rounds=1, local_steps=1)
        network(self.network)
        self.settings()

    def settings(self) -> LocalSettings:
        return LocalSettings(self.optimizer, self.learning_rate, self.weight_decay, self.dropout)

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((self.settings().training(self.local_steps, keep_optimizer=True),))

    def examples(self, graph: FederatedGraph) -> Examples | str:
        if network(self.network).batch_norm:
            return f"{self.name} normalises over all rows that train together: each of them is in every loss"
        passes = self.rounds * self.local_steps
        return node_examples(graph, passes=passes, hops=self.layers, by_degree=True, pooled=self.pooled)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        initial, dropout = split(rng, "weights"), split(rng, "dropout")
        parts = [pooled(graph)] if self.pooled else [graph.client(k) for k in range(graph.num_clients)]
        clients = [channel.prepare(part) for part in parts]
        chosen = network(self.network)
        problem = Problem.local(clients, graph.degrees(), device, chosen)
        train, test = problem.fields(problem.own_sums(graph.x.to(device), self.layers), self.layers)
        sizes = graph.num_features, self.hidden, graph.num_classes, self.layers
        layout = gcn_layout(*sizes, normalised=chosen.batch_norm)
        noise = moved(dropout, device)
        start = glorot(layout, initial).to(device).expand(len(clients), -1)
        models = LocalModels(start, layout, train, self.settings(), noise, channel.local_update())
        owner = graph.owner().to(device)[problem.rows.node[problem.test]]
        tested = test.mask.nonzero(as_tuple=True)
        correct = []
        for round in range(1, self.rounds + 1):
            models.step(self.local_steps)
            hit = hits(test, models.weights)[tested]
            correct.append(torch.zeros(graph.num_clients, device=device).index_add_(0, owner, hit.float()))
            channel.round_done(round, self.rounds)
        accuracy, accuracy_global = accuracies(correct, torch.bincount(owner, minlength=graph.num_clients))
        weights = {name: weight.cpu() for name, weight in unflatten(models.vectors(), layout).items()}
        if self.pooled:
            weights = {name: weight.squeeze(0) for name, weight in weights.items()}
        right = hit[torch.argsort(owner, stable=True)].cpu()
        return Trained(accuracy, accuracy_global, weights, layout, right=right)
