"""Federated averaging of clients on padded subgraphs: what is averaged, and which models are tested."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from fglaudit.context import Aggregate
from fglaudit.errors import require_known
from fglaudit.federated.fedavg import average, averaged_models, broadcast, trainers, upload_models
from fglaudit.federated.subgraph_progress import Progress
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.graph_transformer import initial_model
from fglaudit.payloads import Payload
from fglaudit.rng import split
from fglaudit.sealing import SealedTensor

TESTED = ("local", "received")
"""Whether a client tests its own model after local training, or the one that it then receives."""


@dataclass(frozen=True)
class AveragedSubgraphs(SubgraphProtocol):
    """Clients whose models the server averages.

    Attributes:
        tested: "received" models, or "local" ones, after local training and before the average, as the code that
            FedGT's tables were made with does (``zaixizhang/FedGT``, models/fedavg/client.py).
    """

    tested: str = "received"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known(self, tested=TESTED)


def mean_model(protocol: AveragedSubgraphs, graph: FederatedGraph) -> dict[type[Payload], Aggregate]:
    """Return the facts that a defense needs about the models that :func:`train_average` averages."""
    layout = protocol.shared(graph.num_features + protocol.positions, graph.num_classes)
    return averaged_models(layout, graph.num_clients, len(trainers(graph)), protocol.rounds, weighted=True)


def train_average(
    protocol: AveragedSubgraphs,
    graph: FederatedGraph,
    channel: Channel,
    rng: torch.Generator,
    device: torch.device,
    *,
    changes: bool,
) -> Trained:
    """Train one model by FedAvg, weighted by training nodes; every client tests it, or its own, on its own nodes.

    What is averaged are the first D weights, those of :meth:`SubgraphProtocol.shared`; clients start from the same
    others and keep their own.

    Args:
        changes: whether clients upload the change of their weights instead of the new weights. If changes are sealed,
            the server returns their mean.
    """
    start, near, training = split(rng, "weights"), split(rng, "candidates"), split(rng, "training")
    models = protocol.clients(graph, channel, near, training, device)
    trained = models.inputs.train.sum(1)
    senders = trained.cpu().nonzero().squeeze(1)
    chosen = senders.to(device)
    layout = protocol.shared(graph.num_features + protocol.positions, graph.num_classes)
    width = sum(math.prod(shape) for shape in layout.values())
    progress = Progress(models)
    first = initial_model(models.layout, start).to(device)
    models.load(first.expand(graph.num_clients, -1))
    model = first[:width]
    models.take_up(broadcast(channel, 0, model, graph.num_clients))
    for round in range(1, protocol.rounds + 1):
        held = models.vectors[:, :width].clone()
        models.train_round()
        if protocol.tested == "local":
            progress.test()
        after = models.vectors[chosen, :width]
        received = upload_models(channel, round, senders, after - held[chosen] if changes else after)
        mean = average(received, trained[chosen].to(received))
        if changes and isinstance(mean, SealedTensor):  # only the clients can add it to the model that all of them have
            models.take_up(held + broadcast(channel, round, mean, graph.num_clients))
        else:
            model = model + mean if changes else mean
            models.take_up(broadcast(channel, round, model, graph.num_clients))
        if protocol.tested == "received":
            progress.test()
        channel.round_done(round, protocol.rounds)
    return replace(progress.finish(), layout=layout)
