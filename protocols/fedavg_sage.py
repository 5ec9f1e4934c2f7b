"""FedAvg over GraphSAGE, the FedAvg row of FedGT's Tables 1 and 2 (Zhang et al. 2023, sections 5.1 and D.2).

Every client trains a two-layer GraphSAGE with mean aggregator and 5 sampled neighbours per layer on its own subgraph; the server
averages the models, weighted by training nodes, and every client tests the average on its own nodes.

What is observed: the server sees every client's model in every round, clients the averages.

Choices where the paper is silent: in tests all neighbours are averaged (up to ``candidates``); Adam keeps its memory; no dropout
is stated, 0.5 between the layers is used; the round with the best validation accuracy counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Aggregate, Channel, FederatedProtocol, Trained
from fglaudit.nn.fedavg import average, averaged_models, broadcast, trainers, upload
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.nn.neighbor_sampling import find_candidates
from fglaudit.nn.sage import Sage
from fglaudit.nn.subgraph_inputs import SubgraphInputs, check_subgraphs
from fglaudit.nn.subgraph_progress import Progress
from fglaudit.nn.subgraph_training import SubgraphModels, SubgraphSettings
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import split


@dataclass(frozen=True)
class FedAvgSage(FederatedProtocol):
    """FedAvg over GraphSAGE; defaults are FedGT's settings for it.

    Attributes:
        layers, hidden: of the GraphSAGE.
        neighbors: drawn per node and layer in training.
        candidates: neighbours per node that can be drawn, and that tests average over.
        rounds: averagings.
        local_epochs, batch_size, learning_rate, weight_decay, dropout: see
            :class:`fglaudit.nn.subgraph_training.SubgraphSettings`.
    """

    name: ClassVar[str] = "fedavg-sage"
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)

    layers: int = 2
    hidden: int = 128
    neighbors: int = 5
    candidates: int = 32
    rounds: int = 100
    local_epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    dropout: float = 0.5

    def __post_init__(self) -> None:
        for field, least in (("rounds", 1), ("candidates", self.neighbors)):
            if getattr(self, field) < least:
                raise FglauditError(f"{self.name} needs {field} >= {least}; got {getattr(self, field)}; raise it")
        self.network()
        self.settings()

    def network(self) -> Sage:
        return Sage(self.layers, self.hidden)

    def settings(self) -> SubgraphSettings:
        return SubgraphSettings(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
            neighbors=self.neighbors,
            test_neighbors=self.candidates,
        )

    @property
    def num_rounds(self) -> int:
        return self.rounds

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, of which the server takes a weighted mean."""
        layout = self.network().layout(graph.num_features, graph.num_classes)
        return averaged_models(layout, graph.num_clients, len(trainers(graph)), self.rounds, weighted=True)

    def check(self, graph: FederatedGraph) -> None:
        check_subgraphs(self.name, graph)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        start, pool, training = split(rng, "weights"), split(rng, "candidates"), split(rng, "training")
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        inputs = SubgraphInputs.of(clients, 0, device)
        candidates = find_candidates(clients, "neighbors", self.candidates, 1.0, pool).to(device)
        layout = self.network().layout(graph.num_features, graph.num_classes)
        draws = torch.Generator(device).manual_seed(training.initial_seed())
        models = SubgraphModels(self.network(), self.settings(), inputs, candidates, layout, draws)
        trained = inputs.train.sum(1)
        senders = trained.cpu().nonzero().squeeze(1)
        progress = Progress(models)
        models.load(broadcast(channel, 0, initial_model(layout, start).to(device), len(clients)))
        for round in range(1, self.rounds + 1):
            models.train_round()
            received = upload(channel, round, models.vectors, senders)
            model = average(received, trained[senders.to(device)].to(received))
            models.load(broadcast(channel, round, model, len(clients)))
            progress.test()
            channel.round_done(round, self.rounds)
        return progress.finish()
