"""Protocols that behave where they are looked at, or whose words are made of data: later rounds that carry more,
records that enter several messages or losses, gains and counts that tell of rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.context import Examples, Release
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.private.private_reports import PrivateReports


@dataclass(frozen=True)
class GainByRows(FedGCN):
    """States a gain that is never too small, and larger the longer the longest row is: the noise tells how long."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        longest = 1 + float(graph.x.norm(dim=1).max())
        return tuple(dataclasses.replace(r, gain=longest * r.gain if r.gain else None) for r in super().releases(graph))


@dataclass(frozen=True)
class LaterSumsLarger(FedGCN):
    """Sends its sums again in every round, as it states; from the fifth round on ten times as large."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        return tuple(dataclasses.replace(r, times=self.rounds) for r in super().releases(graph))

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, _SumsAgain(channel, self.rounds), rng=rng, device=device)


@dataclass(frozen=True)
class LaterModelsBare(FedGCN):
    """Adds the mean of a client's rows to its model, from the sixth round on."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, _RowsInModels(channel, graph), rng=rng, device=device)


@dataclass(frozen=True)
class ReportsOfNeighbours(PrivateReports):
    """A node reports the class that most of its neighbourhood is predicted to have, and states that it reports its
    own row's."""

    def report(
        self, predicted: Tensor, classes: int, exchange: HopExchange, edges: KeptEdges, channel: Channel
    ) -> Tensor:
        votes = one_hot(predicted, classes).double()
        total = votes.clone().index_add_(0, edges.receivers().long(), votes[edges.source.long()])
        return super().report(total.argmax(1), classes, exchange, edges, channel)


@dataclass(frozen=True)
class FewerHops(FedAvgSage):
    """States that a loss sees its own node's row alone."""

    def examples(self, graph: FederatedGraph) -> Examples | str:
        return dataclasses.replace(_examples(super().examples(graph)), hops=0)


@dataclass(frozen=True)
class DegreesUnstated(FedGCN):
    """States that weights do not depend on degrees, so that an edge seems to reach losses one step less far."""

    def examples(self, graph: FederatedGraph) -> Examples | str:
        return dataclasses.replace(_examples(super().examples(graph)), by_degree=False)


@dataclass(frozen=True)
class FewerPasses(FedGCN):
    """States one pass over as many losses as there are in all passes."""

    def examples(self, graph: FederatedGraph) -> Examples | str:
        own = _examples(super().examples(graph))
        return dataclasses.replace(own, passes=1, losses=tuple(own.passes * losses for losses in own.losses))


@dataclass(frozen=True)
class TunedByLabels(FedGCN):
    """Learns at a rate that is chosen by which class most validation nodes have."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        rate = (0.5, 0.25)[_most_frequent(graph) % 2]
        return FedGCN.train(dataclasses.replace(self, learning_rate=rate), graph, channel, rng=rng, device=device)


@dataclass(frozen=True)
class StopsByLabels(FedGCN):
    """Stops a round earlier where most validation nodes have an odd class."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        rounds = self.rounds - _most_frequent(graph) % 2
        return FedGCN.train(dataclasses.replace(self, rounds=rounds), graph, channel, rng=rng, device=device)


@dataclass(frozen=True)
class LargerInTheRun(FedGCN):
    """Sends its sums ten times as large over the channel of a run, which it knows by its type."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        carrier = _TenTimes(channel) if type(channel).__name__ == "RecordingChannel" else channel
        return super().train(graph, carrier, rng=rng, device=device)


@dataclass(frozen=True)
class LargerAtFirst(FedGCN):
    """Sends its sums ten times as large in the first training of a process."""

    trainings: ClassVar[list[int]] = []

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.trainings.append(len(self.trainings))
        carrier = _TenTimes(channel) if len(self.trainings) == 1 else channel
        return super().train(graph, carrier, rng=rng, device=device)


def _examples(stated: Examples | str) -> Examples:
    assert isinstance(stated, Examples)
    return stated


def _most_frequent(graph: FederatedGraph) -> int:
    """Return the class that most validation nodes have."""
    chosen = torch.cat([held[val] for held, val in zip(graph.clients, graph.val, strict=True)])
    return int(torch.bincount(graph.y[chosen]).argmax())


class _Through:
    """A channel through which messages go changed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class _SumsAgain(_Through):
    def __init__(self, channel: Channel, rounds: int) -> None:
        super().__init__(channel)
        self._rounds = rounds
        self._kept: list[MessageBatch] = []

    def send(self, batch: MessageBatch) -> Payload:
        if isinstance(batch.payload, NeighborSums) and not _by_server(batch):
            self._kept.append(batch)
        return self._channel.send(batch)

    def round_done(self, round: int, rounds: int) -> None:
        for batch in self._kept if round < self._rounds else ():
            assert isinstance(batch.payload, NeighborSums)
            sums = batch.payload.sums * (10 if round > 4 else 1)
            self._channel.send(
                dataclasses.replace(batch, round=round, payload=dataclasses.replace(batch.payload, sums=sums))
            )
        self._channel.round_done(round, rounds)


class _TenTimes(_Through):
    def send(self, batch: MessageBatch) -> Payload:
        if not isinstance(batch.payload, NeighborSums) or _by_server(batch):
            return self._channel.send(batch)
        larger = dataclasses.replace(batch.payload, sums=10 * batch.payload.sums)
        arrived = self._channel.send(dataclasses.replace(batch, payload=larger))
        assert isinstance(arrived, NeighborSums)
        return dataclasses.replace(arrived, sums=arrived.sums / 10)


class _RowsInModels(_Through):
    def __init__(self, channel: Channel, graph: FederatedGraph) -> None:
        super().__init__(channel)
        self._graph = graph

    def send(self, batch: MessageBatch) -> Payload:
        if not isinstance(batch.payload, ModelUpdate) or _by_server(batch) or batch.round < 6:
            return self._channel.send(batch)
        vector = batch.payload.vector.clone()
        for number, client in enumerate(batch.senders.tolist()):
            vector[number, : self._graph.num_features] += 0.01 * self._graph.x[self._graph.clients[client]].mean(0)
        return self._channel.send(dataclasses.replace(batch, payload=ModelUpdate(vector)))


def _by_server(batch: MessageBatch) -> bool:
    return bool((batch.senders == SERVER).all())


BROKEN: tuple[tuple[str, str], ...] = (
    ("GainByRows", "sums"), ("LaterSumsLarger", "sums-often"), ("LaterModelsBare", "gradients-long"),
    ("ReportsOfNeighbours", "class-reports"), ("FewerHops", "subgraph-gradients"), ("FewerPasses", "gradients"),
    ("DegreesUnstated", "private-gradients"), ("TunedByLabels", "gradients"), ("StopsByLabels", "gradients"),
    ("LargerInTheRun", "sums"), ("LargerAtFirst", "sums"),
)  # fmt: skip
"""What is wrong, and with what."""
