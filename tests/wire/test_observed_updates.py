"""What a defense makes of gradients, and what it seals, is compared with what it states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from observed_runs import CLIENTS, caught, models
from pretended_seals import OpenRows
from torch import Tensor

from fglaudit.facts import (
    GRADIENTS,
    Absent,
    Additive,
    Clipped,
    Fact,
    Field,
    Gradients,
    Sampled,
    Scaled,
    Sealed,
)
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import MessageBatch, ModelUpdate, Payload
from fglaudit.rng import derive
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.wire.channel import RecordingChannel

MODELS = Field("ModelUpdate", direction="up")


@dataclasses.dataclass
class Steps(DefenseSession):
    clip: float | None = 1.0
    std: float = 0.0
    rate: float = 1.0
    stated: tuple[Fact, ...] = ()
    only_step: int | None = None
    edits: bool = False
    seen: int = 0

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        self.seen += 1
        if self.only_step is not None and self.seen != self.only_step:
            return gradients.sum(0)
        scale = torch.ones(gradients.shape[:2])
        if self.clip is not None:
            scale = self.clip / gradients.norm(dim=2).clamp(min=self.clip)
        if self.rate < 1:
            scale = scale * (torch.rand(scale.shape, generator=rng) < self.rate)
        if self.edits:
            gradients.mul_(0.9)
        total = torch.einsum("ek,ekd->kd", scale, gradients)
        return (total + self.std * torch.randn(total.shape, generator=rng)) / self.rate

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


CUT, NOISY = Clipped(GRADIENTS, "L2", 1.0, "example"), Additive(GRADIENTS, "gaussian", 0.5)
HALF = (CUT, Sampled(GRADIENTS, 0.5), NOISY, Scaled(GRADIENTS, 0.0, 2.0))


@pytest.mark.parametrize(
    ("session", "lies"),
    [
        (Steps(None), False),
        (Steps(1.0, stated=(CUT,)), False),
        (Steps(1.0, 0.5, stated=(CUT, NOISY)), False),
        (Steps(1.0, 0.5, 0.5, stated=HALF), False),
        (Steps(1.0), True),
        (Steps(0.9, stated=(CUT,)), True),
        (Steps(1.0, 0.75, stated=(CUT, NOISY)), True),
        (Steps(1.0, 0.0, stated=(CUT, NOISY)), True),
        (Steps(1.0, 0.5, stated=(CUT,)), True),
        (Steps(1.0, 0.75, 0.5, stated=HALF), True),
        (Steps(1.0, 0.5, 0.5, stated=(CUT, NOISY)), True),
        (Steps(1.0, only_step=7), True),
        (Steps(None, edits=True), True),
    ],
)
def test_gradients(session: Steps, lies: bool) -> None:
    channel = RecordingChannel(dataclasses.replace(session), 3, derive(0, "defense"))
    update = channel.local_update()
    assert update is not None
    for step in range(20):
        gradients = torch.randn(12, 3, 700, generator=derive(5, step)) * 0.1
        update(gradients)
    assert caught(channel) == ({Gradients} if lies else set())


@dataclasses.dataclass
class Seals(DefenseSession):
    stated: tuple[Fact, ...] = ()
    change: Callable[[Tensor], Tensor] = lambda value: value
    leaves_out: int = 0

    def seals(self, payload: type[Payload]) -> bool:
        return payload is ModelUpdate

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        batch = batch.select(torch.arange(len(batch.senders)) >= self.leaves_out)
        assert isinstance(batch.payload, ModelUpdate)
        rows = OpenRows(self.change(batch.payload.vector).double())
        return dataclasses.replace(batch, payload=ModelUpdate(sealed_tensor(rows)))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        assert isinstance(batch.payload, ModelUpdate) and isinstance(batch.payload.vector, SealedTensor)
        rows = batch.payload.vector.sealed
        assert isinstance(rows, OpenRows)
        return dataclasses.replace(batch, payload=ModelUpdate(rows.x.float()))

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


SEAL = Sealed(MODELS, "pretended", rounding=0.01)


@pytest.mark.parametrize(
    ("session", "lies"),
    [
        (Seals((SEAL,)), False),
        (Seals((SEAL,), lambda v: v + 0.009), False),
        (Seals((Sealed(MODELS, "p", flooding=0.1),), lambda v: v + 0.1 * torch.randn(v.shape)), False),
        (Seals((Absent(MODELS, (0,)), SEAL), leaves_out=1), False),
        (Seals((Absent(MODELS, share=0.25), SEAL), leaves_out=1), False),
        (Seals(()), True),
        (Seals((SEAL,), lambda v: v + 0.02), True),
        (Seals((SEAL,), lambda v: v.flip(0)), True),
        (Seals((SEAL,), leaves_out=1), True),
        (Seals((Absent(MODELS, (1,)), SEAL), leaves_out=1), True),
        (Seals((Absent(MODELS, share=0.25), SEAL), leaves_out=2), True),
    ],
)
def test_seals(session: Seals, lies: bool) -> None:
    channel = RecordingChannel(session, CLIENTS, derive(0))
    for round in range(3):
        channel.send(models(round))
    assert caught(channel) == ({"ModelUpdate"} if lies else set())
