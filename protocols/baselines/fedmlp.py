"""FedMLP: federated averaging of perceptrons where every node is a client (GFL-APPNP's baseline, section 6.3).

The perceptrons have two layers; the graph is not used. Every I local steps the models of the clients with training
samples are averaged with equal weights, as in GFL-APPNP; ``federated: false`` (the paper's MLPs) never averages: every
client trains alone from the same first model, which a client without training samples keeps. What is observed: the
server sees every model, clients see the global ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Examples, Uploads
from fglaudit.errors import require_least
from fglaudit.federated.fedavg import averaged_models, broadcast, largest_share, trainers, upload_models
from fglaudit.federated.node_clients import NodeClients, check_node_clients
from fglaudit.federated.node_progress import Choice, Record
from fglaudit.federated.perceptron_steps import LocalSteps
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.nn.weights import flatten, gcn_layout, glorot, unflatten
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.protocols.gfl_appnp.jacobians import Hidden
from fglaudit.rng import split
from fglaudit.structure import Models, Structure


@dataclass(frozen=True)
class FedMLP(FederatedProtocol):
    """FedMLP; defaults are GFL-APPNP's for supervised classification.

    Fields are as in :class:`fglaudit.protocols.gfl_appnp.gfl_appnp.GFLAPPNP`.

    Attributes:
        federated: False for independent MLPs.
    """

    name: ClassVar[str] = "fedmlp"
    shown: ClassVar[tuple[str, ...]] = ("federated", "local_steps")
    emits: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)

    federated: bool = True
    hidden: int = 64
    rounds: int = 200
    local_steps: int = 10
    learning_rate: float = 0.1
    batch_size: int = 5
    choice: Choice = "validation"

    def __post_init__(self) -> None:
        require_least(self, hidden=1, rounds=1)
        self.local()

    def local(self) -> LocalSteps:
        return LocalSteps(self.local_steps, self.learning_rate, self.batch_size)

    def check(self, graph: FederatedGraph) -> None:
        check_node_clients(self.name, graph, connected=False)

    def structure(self, graph: FederatedGraph) -> Structure:
        return Structure((Models("weights"), self.local().training()))

    def examples(self, graph: FederatedGraph) -> Examples:
        """A node's losses are those of its own training samples; the graph is not used."""
        samples = tuple(int(train.sum().item()) for train in graph.train)
        most, passes = max(samples), self.rounds * self.local_steps
        return Examples(passes, 0, by_degree=False, across=False, per_node=most, most=most, losses=samples)

    def uploads(self, graph: FederatedGraph) -> Uploads | str:
        return largest_share(graph, 1.0, "uniform") if self.federated else super().uploads(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """The models, of which the server takes the mean."""
        if not self.federated:
            return {}
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)
        return averaged_models(layout, graph.num_clients, len(trainers(graph)), self.rounds)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """Every client's own training samples; none of it leaves a client that trains alone."""
        if not self.federated:
            return None
        rows = NodeClients.of(clients, torch.device("cpu")).training_rows(graph.num_classes)
        return rows.clients.repeat_interleave(rows.present.sum(1)), rows.x[rows.present]

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        data = NodeClients.of([channel.prepare(graph.client(k)) for k in range(graph.num_clients)], device)
        rows = data.training_rows(graph.num_classes)
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)
        initial = glorot(layout, split(rng, "weights")).to(device)
        batches, local, update = split(rng, "batches"), self.local(), channel.local_update()
        scale = torch.ones(len(rows.clients), device=device)
        offset = torch.zeros(len(rows.clients), graph.num_classes, device=device)
        record = Record(data, layout, self.choice)
        models = initial.expand(graph.num_clients, -1)
        if self.federated:
            models = broadcast(channel, 0, initial, graph.num_clients)
        for round in range(1, self.rounds + 1):
            if update is None:
                first, second = unflatten(models[rows.clients], layout).values()
                trained = flatten(
                    dict(zip(layout, local.run(rows, first, second, scale, offset, None, batches), strict=True))
                )
            else:
                trained = local.run_private(rows, models[rows.clients], layout, update, batches)
            if self.federated:
                sent = upload_models(channel, round, rows.clients, trained)
                models = broadcast(channel, round, sent.mean(0), graph.num_clients)
            else:
                models = models.index_copy(0, rows.clients, trained)
            hidden = Hidden.of(data.x, *unflatten(models, layout).values())
            record.add(hidden.output, models)
            channel.round_done(round, self.rounds)
        return record.trained()
