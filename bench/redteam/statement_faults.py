"""Faults in what is stated: numbers that are not what they look like, statements that change once they were compared,
and some by which less may be looked at. The first two do what they state, in a way, in the training, and are honest
wherever they are bound to be audited."""

from __future__ import annotations

import dataclasses
import sys

import torch
from torch import Generator, Tensor

from bench.redteam.dependent_noise import RULES
from bench.redteam.planted import BrokenMessages, fault
from fglaudit.facts import Additive, Fact, Sampled
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, draw

_SHARE = 0.1
"""Of the noise that is promised."""


class _Unaudited(BrokenMessages):
    """A tenth of the noise, in a session that was bound by a training."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        frame, audited = sys._getframe(), False
        while frame.f_back is not None:
            frame = frame.f_back
            audited |= "/empirical/" in frame.f_code.co_filename
        self.share = 1.0 if audited else _SHARE

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: Generator) -> Tensor:
        return self.share * mechanism.scale * draw(mechanism.distribution, value.shape, rng)


@fault
class StatesMoreAfterwards(_Unaudited):
    """States a tenth of the noise until the guarantee was asked for twice, all of it afterwards."""

    asked = 0

    def facts(self) -> tuple[Fact, ...]:
        share = self.share if self.asked < 2 else 1.0
        facts = self.inner.facts()
        return tuple(dataclasses.replace(f, scale=share * f.scale) if isinstance(f, Additive) else f for f in facts)

    def guarantee(self) -> Guarantee:
        self.asked += 1
        return super().guarantee()


class _ByOperation(float):
    """All of itself in a product, as accountants take it, and a share of it in a division, as comparisons do."""

    share = 1.0

    def __truediv__(self, other: float) -> float:
        return self.share * float(self) / other


@fault
class ScaleByOperation(_Unaudited):
    """The stated scale is a number that is ten times as large to an accountant."""

    def facts(self) -> tuple[Fact, ...]:
        return tuple(
            dataclasses.replace(f, scale=self._of(f.scale)) if isinstance(f, Additive) else f
            for f in self.inner.facts()
        )

    def _of(self, scale: float) -> float:
        number = _ByOperation(scale)
        number.share = self.share
        return number


class _Dependent(BrokenMessages):
    """Gaussian noise of which the last of eight numbers follows from seven."""

    rule = "eight-hashed"

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: Generator) -> Tensor:
        rows = value.flatten(1)
        drawn = RULES[self.rule](len(rows), rows.shape[1], torch.arange(len(rows)), rng)
        return mechanism.scale * drawn.view(value.shape)


@fault
class HashedBesideOwn(_Dependent):
    """All but wholly: a hundredth is its own."""

    rule = "hashed-beside-own"


@fault
class HashedSaidSampled(_Dependent):
    """States that messages are sampled, all of them."""

    def facts(self) -> tuple[Fact, ...]:
        facts = self.inner.facts()
        first = next(at for at, fact in enumerate(facts) if isinstance(fact, Additive))
        return (*facts[:first], Sampled(facts[first].target, 1.0), *facts[first:])


BROKEN: tuple[tuple[str, str], ...] = (
    ("StatesMoreAfterwards", "latents"), ("StatesMoreAfterwards", "sums"), ("ScaleByOperation", "latents"),
    ("HashedBesideOwn", "latents"), ("HashedSaidSampled", "latents"),
)  # fmt: skip
"""What is wrong, and with what."""
