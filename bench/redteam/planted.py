"""A defense with one thing wrong: the hooks of an honest one, which still states what it should do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.facts import Fact
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.mechanism import Mechanism, draw


class Broken(DefenseSession):
    """Does what ``inner`` does; a fault overrides one method."""

    @classmethod
    def begin(cls) -> None:
        """Forget sessions of earlier runs."""

    def __init__(self, inner: DefenseSession) -> None:
        self.inner = inner

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return self.inner.prepare(client, rng)

    def prepares(self) -> bool:
        return self.inner.prepares()

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return self.inner.local_update(gradients, rng)

    def updates(self) -> bool:
        return self.inner.updates()

    def changes(self, payload: type[Payload]) -> bool:
        return self.inner.changes(payload)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        return self.inner.release(batch, rng)

    def facts(self) -> tuple[Fact, ...]:
        return self.inner.facts()

    def guarantee(self) -> Guarantee:
        return self.inner.guarantee()


class BrokenMessages(Broken):
    """Messages of a defense that clips and adds noise: a fault overrides the clip, the noise, or what is sent."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.count = 0
        self.kept: dict[object, Tensor] = {}

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        inner, kind = self.inner, type(batch.payload)
        assert isinstance(inner, NoiseSession)
        if kind not in inner.noised:
            return inner.release(batch, rng)
        release, mechanism = inner.noised[kind]
        if bool((batch.senders == SERVER).all()) is not release.by_server:
            return inner.release(batch, rng)
        inner.release(batch, torch.Generator().manual_seed(0))  # what it counts and remembers
        self.count += 1
        sent = {}
        for name, value in batch.payload.tensors().items():
            if name in release.fields if release.fields else value.is_floating_point():
                clipped = self.clipped(value, batch, mechanism)
                noise = self.fresh(clipped, batch, mechanism, rng)
                sent[name] = self.sent(clipped, noise.to(value), batch, mechanism)
            else:
                sent[name] = self.other(name, value, batch)
        return kind.from_tensors(sent)

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        assert isinstance(self.inner, NoiseSession)
        return self.inner.bounded(batch, value, mechanism)

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return mechanism.scale * draw(mechanism.distribution, value.shape, rng)

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clipped + noise

    def other(self, name: str, value: Tensor, batch: MessageBatch) -> Tensor:
        return value


FAULTS: dict[str, type[Broken]] = {}
"""By name, what makes a broken session of an honest one."""


def fault(cls: type[Broken]) -> type[Broken]:
    """Register a fault under its class's name."""
    FAULTS[cls.__name__] = cls
    return cls


@dataclass(frozen=True)
class Planted(Defense):
    """``honest`` with the fault of that name.

    Attributes:
        honest: what it says it is.
        fault: makes a broken session of an honest one.
    """

    name: ClassVar[str] = "planted"
    shown: ClassVar[tuple[str, ...]] = ("fault",)

    honest: Defense
    fault: type[Broken]

    def unsupported(self, context: Context) -> str | None:
        return self.honest.unsupported(context)

    def bind(self, context: Context) -> DefenseSession:
        return self.fault(self.honest.bind(context))

    def weakened(self, factor: float) -> Planted:
        return dataclasses.replace(self, honest=self.honest.weakened(factor))
