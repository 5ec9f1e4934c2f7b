"""FedAvg as the code of FedGT has it (``models/fedavg`` there and in FED-PUB), to explain rows of FedGT's tables.

FedGT's text has GraphSAGE. Its code has FED-PUB's network: two graph convolutions and a linear layer of 128 units,
trained in one full-batch step of Adam a round, learning rate 0.01 and L2 penalty 1e-6, tested after that step and
before the average. Not as there: the average is weighted by training nodes (the code's weights are all equal).

FedPer, GCFL+ and FedSage+ are in neither code. Over this network FedPer's clients keep the layer of classes at home,
and FedSage+ propagates the rows that it generated with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.federated.subgraph_average import AveragedSubgraphs, Tested
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_training import Surroundings
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Channel
from fglaudit.nn.weights import Layout
from fglaudit.payloads import Payload
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.protocols.fedpub.full_graph import FullGraph, with_propagated_rows
from fglaudit.protocols.fedsage.fedsage import FedSage


@dataclass(frozen=True)
class _GraphConvolutions(AveragedSubgraphs):
    """FED-PUB's network without its masks, and how it is trained and tested."""

    batch_size: int = FedPub.batch_size
    learning_rate: float = FedPub.learning_rate
    weight_decay: float = FedPub.weight_decay
    tested: Tested = "local"

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return FedPub().shared(num_inputs, num_classes)

    def completed(
        self, clients: Sequence[ClientGraph], channel: Channel, rng: torch.Generator, device: torch.device
    ) -> Sequence[ClientGraph]:
        return [with_propagated_rows(client) for client in clients]

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator
    ) -> Surroundings:
        return FullGraph.of(clients, inputs.present)


@dataclass(frozen=True)
class PublishedFedAvg(_GraphConvolutions):
    """FedAvg over FED-PUB's network without its masks."""

    name: ClassVar[str] = "published-fedavg"
    changes: ClassVar[bool] = False


@dataclass(frozen=True)
class PublishedFedPer(PublishedFedAvg):
    """FedPer over FED-PUB's network: the convolutions are averaged, every client keeps its own layer of classes."""

    name: ClassVar[str] = "published-fedper"

    def shared(self, num_inputs: int, num_classes: int) -> Layout:
        shapes = self.layout(num_inputs, num_classes)
        return {name: shape for name, shape in shapes.items() if not name.startswith("classes.")}


@dataclass(frozen=True)
class PublishedGCFL(_GraphConvolutions, GCFLSage):
    """GCFL+ over FED-PUB's network, at the bounds of its authors."""

    name: ClassVar[str] = "published-gcfl"


@dataclass(frozen=True)
class PublishedFedSage(PublishedFedAvg, FedSage):
    """FedSage+ over FED-PUB's network; generators are trained as in :class:`FedSage`."""

    name: ClassVar[str] = "published-fedsage"
    emits: ClassVar[tuple[type[Payload], ...]] = FedSage.emits

    def completed(
        self, clients: Sequence[ClientGraph], channel: Channel, rng: torch.Generator, device: torch.device
    ) -> Sequence[ClientGraph]:
        return super().completed(FedSage.completed(self, clients, channel, rng, device), channel, rng, device)
