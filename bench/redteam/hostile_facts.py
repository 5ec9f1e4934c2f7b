"""Defenses that state what they never do, or do it with draws that anybody can repeat.

Attacks reckon with what is stated, so a fact that is not so makes them blind: none of these may be called "held",
whatever attacks here get. A suite names one as ``{name: "bench/redteam/hostile_facts.py:Untrue", kind: idle-noise}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import ROWS, Additive, Clipped, Correlated, Fact, Field, Randomised, Rounded
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive

_SEEDS = 256


@dataclass(frozen=True)
class Untrue(Defense):
    """Plant one of the kinds on the floating-point fields that clients send of ``on``, or on their rows.

    Attributes:
        std: of the noise that is stated, and the step of what is rounded.
    """

    name: ClassVar[str] = "untrue"
    shown: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = "idle-noise"
    on: str = "NeighborSums"
    std: float = 50.0

    def bind(self, context: Context) -> DefenseSession:
        if self.kind in IDLE:
            return _Idle(self)
        if self.kind in REPORTS:
            return _Reports(self, context.num_features)
        return _Messages(self, context.num_features)

    def weakened(self, factor: float) -> Untrue:
        return replace(self, std=self.std * factor)

    @property
    def field(self) -> Field:
        return Field(self.on, "", "up")


def _multi_bit(width: int, epsilon: float) -> Randomised:
    """Reports of all features of a row, ``epsilon`` each."""
    factor = 1 / (2 * math.tanh(epsilon / 2))
    stated: dict[str, Any] = {
        "sampled_features": width, "bit_epsilon": epsilon, "center": 0.0, "step": 1.0, "offset": 0.5, "factor": factor,
        "low": 0.0, "high": 1.0, "std": math.sqrt(factor**2 - 0.25),
    }  # fmt: skip
    return Randomised(ROWS, "multi-bit", tuple(stated.items()))


IDLE: dict[str, Callable[[Untrue], Fact]] = {
    "idle-noise": lambda d: Additive(d.field, "gaussian", d.std),
    "idle-row-noise": lambda d: Additive(ROWS, "gaussian", d.std),
    "idle-clip": lambda d: Clipped(ROWS, "L2", 1e-3, "row"),
    "idle-reports": lambda d: _multi_bit(1, 0.1),
}
"""What is stated of a session that has no hook at all."""


class _Idle(DefenseSession):
    def __init__(self, defense: Untrue) -> None:
        self._facts = (IDLE[defense.kind](defense),)

    def facts(self) -> tuple[Fact, ...]:
        return self._facts


def _few_seeds(values: Tensor, std: float, rng: torch.Generator) -> Tensor:
    seed = int(torch.randint(_SEEDS, (1,), generator=rng).item())
    return values + std * torch.randn(values.shape, generator=derive(1, "few seeds", seed))


def _last_bits(values: Tensor, std: float, rng: torch.Generator) -> Tensor:
    """Noise whose last bit says whether there was anything."""
    sent = (values + std * torch.randn(values.shape, generator=rng)).float().contiguous().view(torch.int32)
    return ((sent & ~1) | (values > 0).int()).view(torch.float32)


def _bare(values: Tensor, std: float, rng: torch.Generator) -> Tensor:
    """Noise on the first column alone."""
    noise = torch.zeros_like(values)
    noise[:, 0] = torch.randn(len(values), generator=rng)
    return values + std * noise


def _roundings(values: Tensor, std: float, rng: torch.Generator) -> Tensor:
    return (((values.double() / std) + torch.rand(values.shape, generator=rng, dtype=torch.double)).floor() * std).to(
        values
    )


Done = Callable[[Tensor, float, torch.Generator], Tensor]
MESSAGES: dict[str, Done] = {
    "later": lambda v, std, rng: v,
    "edited": lambda v, std, rng: v,
    "few-seeds": _few_seeds,
    "last-bits": _last_bits,
    "bare-columns": _bare,
    "same-roundings": lambda v, std, rng: _roundings(v, std, derive(2, "same roundings")),
    "roundings": _roundings,
}


class _Messages(DefenseSession):
    def __init__(self, defense: Untrue, features: int) -> None:
        self.defense = defense
        field, std = defense.field, defense.std
        one = [[float(i == j == 0) for j in range(features)] for i in range(features)]
        self.noise = Additive(field, "gaussian", 0.0 if defense.kind == "edited" else std)
        self._facts: tuple[Fact, ...] = {
            "later": (replace(self.noise, target=replace(field, since=1000)),),
            "bare-columns": (self.noise, Correlated(field, tuple(map(tuple, one)), "coordinates")),
            "same-roundings": (Rounded(field, std, stochastic=True),),
            "roundings": (Rounded(field, std, stochastic=True),),
        }.get(defense.kind, (self.noise,))

    def changes(self, payload: type[Payload]) -> bool:
        return payload.__name__ == self.defense.on

    def facts(self) -> tuple[Fact, ...]:
        return self._facts

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        sent = batch.payload.tensors()
        for name, value in sent.items():
            if value.is_floating_point():
                rows = value.reshape(len(value), -1)
                sent[name] = MESSAGES[self.defense.kind](rows, self.defense.std, rng).reshape(value.shape)
        if self.defense.kind == "edited":
            object.__setattr__(self.noise, "scale", self.defense.std)
        return type(batch.payload).from_tensors(sent)


REPORTS = ("same-reports", "reports")


class _Reports(DefenseSession):
    """Multi-bit reports of every feature, at hardly any epsilon."""

    def __init__(self, defense: Untrue, features: int) -> None:
        self.defense = defense
        self.epsilon = 0.1 if defense.std >= 1 else 20.0
        self._facts = (_multi_bit(features, self.epsilon),)

    def facts(self) -> tuple[Fact, ...]:
        return self._facts

    def prepares(self) -> bool:
        return True

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        drawn = derive(3, client.client) if self.defense.kind == "same-reports" else rng
        lie = 1 / (math.exp(self.epsilon) + 1)
        says_one = torch.rand(client.x.shape, generator=drawn) < lie + client.x.clamp(0, 1) * (1 - 2 * lie)
        return replace(client, x=(2 * says_one - 1).to(client.x))


HONEST = ("roundings", "reports")
"""What is stated, drawn from the run's generator: nobody may be accused of these."""
KINDS = tuple(kind for kind in (*IDLE, *MESSAGES, *REPORTS) if kind not in HONEST)
