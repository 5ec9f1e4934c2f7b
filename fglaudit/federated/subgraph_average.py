"""Federated averaging of clients on padded subgraphs: what is averaged, and which models are tested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from fglaudit.context import Aggregate, Uploads
from fglaudit.federated.fedavg import average, averaged_models, broadcast, largest_share, trainers, upload_models
from fglaudit.federated.subgraph_progress import Progress
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.sealing import SealedTensor
from fglaudit.structure import Models, Structure

Tested = Literal["local", "received"]
"""Whether a client tests its own model after local training, or the one that it then receives."""


@dataclass(frozen=True)
class AveragedSubgraphs(SubgraphProtocol):
    """Clients whose models the server averages, weighted by training nodes. What is averaged are the first D weights,
    those of :meth:`shared`; clients start from the same others and keep their own.

    Attributes:
        tested: "received" models, or "local" ones, after local training and before the average, as the code that
            FedGT's tables were made with does (``zaixizhang/FedGT``, models/fedavg/client.py).
    """

    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    changes: ClassVar[bool] = True
    """Whether clients upload the change of their weights instead of the new weights. If changes are sealed, the server
    returns their mean."""

    tested: Tested = "received"

    def structure(self, graph: FederatedGraph) -> Structure:
        return super().structure(graph).replace(Models, upload="changes" if self.changes else "weights")

    def uploads(self, graph: FederatedGraph) -> Uploads | str:
        return super().uploads(graph) if self.changes else largest_share(graph, 1.0, "train-nodes")

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, of which the server takes a weighted mean."""
        layout = self.shared(graph.num_features + self.positions, graph.num_classes)
        return averaged_models(layout, graph.num_clients, len(trainers(graph)), self.rounds, weighted=True)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        """Train one model by FedAvg; every client tests it, or its own, on its own nodes."""
        start, near, training = split(rng, "weights"), split(rng, "candidates"), split(rng, "training")
        models = self.clients(graph, channel, near, training, device)
        trained = models.inputs.train.sum(1)
        senders = trained.cpu().nonzero().squeeze(1)
        chosen = senders.to(device)
        layout = self.shared(graph.num_features + self.positions, graph.num_classes)
        width = sum(math.prod(shape) for shape in layout.values())
        progress = Progress(models)
        first = initial_model(models.layout, start).to(device)
        models.load(first.expand(graph.num_clients, -1))
        model = first[:width]
        models.take_up(broadcast(channel, 0, model, graph.num_clients))
        for round in range(1, self.rounds + 1):
            held = models.vectors[:, :width].clone()
            models.train_round()
            if self.tested == "local":
                progress.test()
            after = models.vectors[chosen, :width]
            received = upload_models(channel, round, senders, after - held[chosen] if self.changes else after)
            mean = average(received, trained[chosen].to(received))
            if self.changes and isinstance(mean, SealedTensor):  # clients alone can add it to the model that all have
                models.take_up(held + broadcast(channel, round, mean, graph.num_clients))
            else:
                model = model + mean if self.changes else mean
                models.take_up(broadcast(channel, round, model, graph.num_clients))
            if self.tested == "received":
                progress.test()
            channel.round_done(round, self.rounds)
        return replace(progress.finish(), layout=layout)
