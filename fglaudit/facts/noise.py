"""Facts about what is added."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from fglaudit.errors import FglauditError
from fglaudit.facts.base import Fact
from fglaudit.facts.explaining import Expected

_STD = {"gaussian": 1.0, "laplace": math.sqrt(2), "uniform": 1 / math.sqrt(3)}


@dataclass(frozen=True)
class Additive(Fact):
    """Fresh noise with mean 0 on every entry, independent of its value and of all other noise.

    Attributes:
        distribution: "gaussian" (``scale`` is the standard deviation), "laplace" (its scale), "uniform" (half its
            width), or another name, then ``scale`` is the standard deviation.
    """

    distribution: str
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.scale >= 0 and math.isfinite(self.scale)):
            raise FglauditError(f"noise has a finite scale of at least 0; got {self.scale}; state the scale in use")

    @property
    def std(self) -> float:
        """Standard deviation of one entry's noise."""
        return self.scale * _STD.get(self.distribution, 1.0)

    def applied(self, expected: Expected) -> Expected:
        size = abs(expected.factor)  # scaled before, noise is not
        if size == 0 or expected.reports is not None:
            return replace(expected, opaque="noise on a constant or on reports")
        return replace(expected, noise=(*expected.noise, (self.distribution, self.scale / size)), grid=None)


@dataclass(frozen=True)
class Correlated(Fact):
    """The noise of :class:`Additive` is not independent: ``matrix @ independent noise`` along ``axis``.

    Attributes:
        matrix: rows of numbers [n][n].
        axis: "rounds" (row t is round t's, counted from the target's first one), "messages" or "coordinates".
    """

    matrix: tuple[tuple[float, ...], ...]
    axis: str = "rounds"

    def applied(self, expected: Expected) -> Expected:
        matrix = torch.tensor(self.matrix, dtype=torch.float64)
        if self.axis != "rounds":
            return replace(expected, whitening=(matrix, self.axis))
        if not expected.round < len(matrix):
            return replace(expected, noise=(*expected.noise, ("gaussian", 0.0)))
        row = matrix[expected.round]
        length = float(row.norm())
        before = matrix[expected.round - 1] if expected.round else torch.zeros_like(row)
        shared = float(row @ before) / max(length * float(before.norm()), 1e-300)
        return replace(expected, spread=length, previous=shared)


@dataclass(frozen=True)
class Memoised(Fact):
    """The noise on an entry is drawn once and used again in every later round."""

    def applied(self, expected: Expected) -> Expected:
        return replace(expected, previous=None)


@dataclass(frozen=True)
class Masked(Fact):
    """Masks are added that cancel in the sum over all senders of a round."""

    def applied(self, expected: Expected) -> Expected:
        return replace(expected, masked=True)
