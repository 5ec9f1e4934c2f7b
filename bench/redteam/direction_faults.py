"""Faults that no single number shows: noise that is other noise turned, or that leaves directions alone."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.redteam.local_faults import BrokenRows
from bench.redteam.planted import BrokenMessages, fault
from fglaudit.graph import ClientGraph
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, draw
from fglaudit.rng import derive


def _turn(width: int, number: int) -> Tensor:
    """A rotation that everybody can draw."""
    drawn = torch.randn(width, width, generator=derive(6, "turn", number), dtype=torch.float64)
    turned: Tensor = torch.linalg.qr(drawn)[0]
    return turned


@fault
class TurnedReleases(BrokenMessages):
    """A release's noise is the first one's, each message's under a rotation that everybody knows; where messages are
    long, as replays make them short."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        first = self.kept.setdefault((type(batch.payload), value.shape), noise).flatten(1)
        if first.shape[1] <= 3:
            return noise
        return (first @ _turn(first.shape[1], self.count)).view(value.shape)


@fault
class TurnedClients(BrokenRows):
    """A client's rows have the noise of the first client's, turned."""

    first: Tensor | None = None

    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        clipped = self.mechanism.clipped(client.x)
        noise = honest - clipped
        if self.first is None or client.client == 0:
            self.first = noise
            return honest
        shared = self.first[: len(noise)].double() @ _turn(noise.shape[-1], client.client)
        return clipped + torch.cat([shared.to(noise), noise[len(shared) :]])


@fault
class NoiseSumsToZero(BrokenMessages):
    """The numbers of all messages together have no noise in their sum, where they are many."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        return noise - noise.mean() if noise.numel() > 1000 else noise


BROKEN: tuple[tuple[str, str], ...] = (
    ("TurnedReleases", "latents"), ("TurnedClients", "rows"), ("NoiseSumsToZero", "sums"),
)  # fmt: skip
"""What is wrong, and with what."""
