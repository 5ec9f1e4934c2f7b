"""A hook of a defense where noise is added, replayed over all releases on inputs of the auditor's choice.

A stage hands the hook what the guarantee is about: values at the distance that the account allows one record to move
them, for as many releases as were counted. Inputs are the same in every release; the account must hold for them as for
any others. Messages have few numbers (an account does not depend on how many), so thousands of replays are one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fglaudit.interfaces import DefenseSession
from fglaudit.privacy.accounted import Noised
from fglaudit.privacy.accounting import Relation, compose, event_of
from fglaudit.privacy.tradeoff import TradeOff

HUGE = 1000.0
"""Length of an input in clips, so that a clip that is forgotten is found out."""
WIDE = 3.0
"""Another one, just beyond the clip."""
CALL = 2**15
"""Numbers that are drawn in the time of a call, about."""


@dataclass(frozen=True)
class Pair:
    """Two inputs of a stage that differ in one record.

    Attributes:
        name: what the record is.
        present, absent: inputs as :meth:`Stage.play` takes them.
    """

    name: str
    present: Any
    absent: Any


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One noised thing of an account.

    Attributes:
        noise: what the account says of it.
        relation: what happens to the record.
        fresh: binds the defense anew.
        stated: the trade-off curve of all its releases, for inputs of :attr:`numbers` numbers.
        factor: by which what has noise is multiplied afterwards, in size, as stated.
        alone: whether every replay is a run of its own, in which no draw can be another replay's too.
    """

    noise: Noised
    relation: Relation
    fresh: Callable[[], DefenseSession]
    stated: TradeOff
    factor: float = 1.0
    alone: bool = False

    @property
    def scale(self) -> float:
        """Of the noise as it is seen."""
        return self.factor * self.noise.scale

    @property
    def name(self) -> str:
        """What is released, in words."""
        return f"{self.noise.payload}{' of the server' if self.noise.by_server else ''}"

    @property
    @abstractmethod
    def numbers(self) -> int:
        """Numbers that one replay draws, about."""

    @abstractmethod
    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        """Return worst cases."""

    def play(self, given: Any, copies: int, rng: torch.Generator) -> Tensor:
        """Return what is seen of ``copies`` replays [copies, releases, C], in float64."""
        if not self.alone:
            return self.side_by_side(given, copies, rng)
        return torch.cat([self.side_by_side(given, 1, rng) for _ in range(copies)])

    @abstractmethod
    def side_by_side(self, given: Any, copies: int, rng: torch.Generator) -> Tensor:
        """Return the same, of replays whose messages leave in one call each release: independent where the defense
        draws for every message."""

    @property
    def cost(self) -> int:
        """What one replay costs, in numbers that are drawn."""
        return self.numbers + (CALL * self.noise.releases if self.alone else 0)


def stated_curve(noise: Noised, numbers: int = 1) -> TradeOff:
    """Return the curve of all releases of additive noise on a record that moves each by its whole sensitivity.

    Args:
        numbers: of independent numbers per release, each of which moves by the sensitivity: more than 1 where every
            number is clipped by itself.
    """
    releases = noise.releases * numbers
    if noise.distribution == "gaussian":
        return TradeOff.gaussian(releases**0.5 * noise.sensitivity / noise.scale)
    event = compose(event_of(noise.distribution, noise.scale / noise.sensitivity), releases)
    return TradeOff.of(event, Relation.ZERO_OUT)


def directions(width: int, rng: torch.Generator, norm: str) -> list[tuple[str, Tensor]]:
    """Return vectors [width] of norm 1: single numbers, all numbers alike, and a random direction."""
    first, last, dense = torch.zeros(3, width, dtype=torch.float64)
    first[0] = 1
    last[int(torch.randint(width, (1,), generator=rng).item())] = 1
    dense[:] = 1
    signs = torch.randn(width, generator=rng, dtype=torch.float64)
    order = {"L1": 1, "L2": 2}.get(norm, float("inf"))
    found = [("one number", first), ("all numbers", dense), ("a random direction", signs), ("another number", last)]
    if norm == "elementwise":
        found = [("all numbers", dense), ("random signs", torch.where(signs < 0, -1.0, 1.0).double())]
    return [(name, vector / torch.linalg.vector_norm(vector, ord=order)) for name, vector in found]


def worlds(name: str, value: Tensor, *, turned: bool) -> Pair:
    """Return ``value`` there, and zeros in its place; if ``turned`` its opposite, which is furthest after a clip."""
    return Pair(name, value, -value if turned else torch.zeros_like(value))
