"""Protocols that state less of what they send than is so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.redteam.protocol_lies import (
    DegreesUnstated,
    FewerHops,
    FewerPasses,
    GainByRows,
    LargerAtFirst,
    LargerInTheRun,
    LaterModelsBare,
    LaterSumsLarger,
    ReportsOfNeighbours,
    StopsByLabels,
    TunedByLabels,
)
from fglaudit.context import Release
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN


@dataclass(frozen=True)
class HalfTheGain(FedGCN):
    """States half of how far a row moves its sums."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        return tuple(dataclasses.replace(r, gain=0.5 * r.gain if r.gain else None) for r in super().releases(graph))


@dataclass(frozen=True)
class SendsTwice(FedGCN):
    """Sends its sums a second time, each time with noise of its own, and states one release."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, _Twice(channel), rng=rng, device=device)  # type: ignore[arg-type]


class _Twice:
    """A channel through which sums go twice."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> object:
        return getattr(self._channel, name)

    def send(self, batch: MessageBatch) -> Payload:
        if isinstance(batch.payload, NeighborSums):
            self._channel.send(batch)
        return self._channel.send(batch)


@dataclass(frozen=True)
class KnownClients(FedGCN):
    """Two of three clients send in every round, as a seed has it that everybody knows: drawn afresh, it states."""

    participation: float = 2 / 3

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        return super().train(graph, channel, rng=torch.Generator().manual_seed(0), device=device)


def _as(kind: type[FederatedProtocol]) -> Callable[[FederatedProtocol], FederatedProtocol]:
    def changed(protocol: FederatedProtocol) -> FederatedProtocol:
        assert issubclass(kind, type(protocol))
        LargerAtFirst.trainings.clear()
        own = {"participation"} if kind is KnownClients else set()
        values = {f.name: getattr(protocol, f.name) for f in dataclasses.fields(protocol)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in values.items() if name not in own})

    return changed


_KINDS = (
    *(HalfTheGain, SendsTwice, KnownClients),
    *(GainByRows, LaterSumsLarger, LaterModelsBare, ReportsOfNeighbours, FewerHops, FewerPasses, DegreesUnstated),
    *(LargerInTheRun, LargerAtFirst, TunedByLabels, StopsByLabels),
)
PROTOCOLS: dict[str, Callable[[FederatedProtocol], FederatedProtocol]] = {kind.__name__: _as(kind) for kind in _KINDS}
