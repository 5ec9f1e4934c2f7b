"""A defense that changes messages as it is told, and changes that honest and other defenses make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from observed_runs import CLIENTS, models
from torch import Tensor

from fglaudit.facts import (
    Additive,
    Fact,
    Field,
    Target,
)
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.privacy.mechanism import clip_messages, draw
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

SUMS, MODELS = Field("NeighborSums", direction="up"), Field("ModelUpdate", direction="up")
ROUNDS = 6
Change = Callable[[Tensor, torch.Generator, MessageBatch], Tensor]


@dataclasses.dataclass
class Session(DefenseSession):
    """Changes the floating-point fields that clients send, and states what it likes."""

    stated: tuple[Fact, ...] = ()
    change: Change | None = None
    on: tuple[str, ...] = ("NeighborSums", "ModelUpdate")
    admits: bool = True

    def changes(self, payload: type[Payload]) -> bool:
        return self.admits

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        up = bool((batch.senders != SERVER).all())
        if self.change is None or type(batch.payload).__name__ not in self.on or not up:
            return batch.payload
        fields = {
            name: self.change(value, rng, batch) if value.is_floating_point() else value
            for name, value in batch.payload.tensors().items()
        }
        return type(batch.payload).from_tensors(fields)

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


def sums(round: int, rows: int = 40, features: int = 24) -> MessageBatch:
    """Every client sends rows of sums of binary features."""
    rng = derive(7, "sums", round)
    values = (torch.rand(CLIENTS * rows, features, generator=rng) < 0.2).float() * torch.arange(1.0, features + 1)
    nodes = torch.arange(rows).repeat(CLIENTS)
    splits = torch.arange(CLIENTS + 1) * rows
    return MessageBatch(
        round, torch.arange(CLIENTS), torch.full((CLIENTS,), SERVER), NeighborSums(nodes, values), splits
    )


def returned(round: int, width: int = 1200) -> MessageBatch:
    vector = torch.randn(1, width, generator=derive(8, "models", round)).expand(CLIENTS, -1)
    return MessageBatch(round, torch.full((CLIENTS,), SERVER), torch.arange(CLIENTS), ModelUpdate(vector))


def run(session: DefenseSession, seed: int = 0, rounds: int = ROUNDS) -> RecordingChannel:
    channel = RecordingChannel(session, CLIENTS, derive(seed, "defense"))
    for round in range(rounds):
        channel.send(returned(round))
        channel.send(sums(round))
        channel.send(models(round))
    return channel


def gaussian(std: float) -> Change:
    return lambda value, rng, batch: value + (std * draw("gaussian", value.shape, rng)).to(value)


def laplace(scale: float) -> Change:
    return lambda value, rng, batch: value + (scale * draw("laplace", value.shape, rng)).to(value)


def then(*changes: Change) -> Change:
    def all_of(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        for change in changes:
            value = change(value, rng, batch)
        return value

    return all_of


def clip(bound: float, norm: str = "l2") -> Change:
    return lambda value, rng, batch: clip_messages(value, bound, norm)


def to_grid(step: float, center: float = 0.0) -> Change:
    return lambda value, rng, batch: center + step * torch.round((value - center) / step)


def both(*facts: Callable[[Target], Fact]) -> tuple[Fact, ...]:
    return tuple(fact(target) for target in (SUMS, MODELS) for fact in facts)


class Shared:
    """One noise for all rounds."""

    def __init__(self) -> None:
        self.drawn: dict[torch.Size, Tensor] = {}

    def __call__(self, value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        if value.shape not in self.drawn:
            self.drawn[value.shape] = torch.randn(value.shape, generator=rng)
        return value + self.drawn[value.shape]


class TreeNoise:
    """Noise of a round that shares half of its variance with the round before."""

    def __init__(self) -> None:
        self.last: dict[torch.Size, Tensor] = {}

    def __call__(self, value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        fresh = torch.randn(value.shape, generator=rng)
        old = self.last.get(value.shape, torch.zeros_like(fresh))
        self.last[value.shape] = fresh
        return value + fresh + old


BAND = tuple(tuple(float(column in (row, row - 1)) for column in range(ROUNDS)) for row in range(ROUNDS))


NOISE = both(lambda t: Additive(t, "gaussian", 1.0))
