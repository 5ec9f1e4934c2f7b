"""Protocols whose own words on their messages are false, and those that look at test labels or pool all data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fglaudit.context import Release, Uploads
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.payloads import Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.structure import Models, Structure, Sums


@dataclass(frozen=True)
class Told(FedGCN):
    """FedGCN with other words on it."""

    name: ClassVar[str] = "told"

    gain: float = 1.0
    sums: str = ""
    uploaded: str = "weights"

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        return tuple(replace(r, gain=r.gain * self.gain) if r.gain else r for r in super().releases(graph))

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return replace(super().uploads(graph), changes=self.uploaded == "changes")

    def structure(self, graph: FederatedGraph) -> Structure:
        stated = super().structure(graph).replace(Models, upload=self.uploaded)
        return stated.replace(Sums, weighting=self.sums) if self.sums else stated


@dataclass(frozen=True)
class BestRound(FedGCN):
    """Counts the round with the best accuracy on the test set."""

    name: ClassVar[str] = "best-round"

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        trained = super().train(graph, channel, rng=rng, device=device)
        return replace(trained, round=int(trained.accuracy_global.argmax()), right=None)


@dataclass(frozen=True)
class Pooled(FederatedProtocol):
    """Says that it sends nothing, and trains on everybody's rows where they all are."""

    name: ClassVar[str] = "pooled"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    pooled: bool = True

    @property
    def num_rounds(self) -> int:
        return 1

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        everything = torch.cat([c.x[c.train].T @ torch.eye(graph.num_classes)[c.y[c.train]] for c in clients], 1)
        every = everything.view(graph.num_features, len(clients), graph.num_classes)
        weights = [every.sum(1) if self.pooled else every[:, k] for k in range(len(clients))]
        hits = [((c.x @ w).argmax(1) == c.y)[c.test].float() for c, w in zip(clients, weights, strict=True)]
        accuracy = torch.stack([hit.mean() for hit in hits])[None]
        return Trained(accuracy, torch.cat(hits).mean()[None], {"weight": torch.stack(weights)})
