"""Axes of a figure: from numbers to pixels, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TICKS = 5


@dataclass(frozen=True)
class Axis:
    """Numbers from ``low`` to ``high`` on pixels from ``start`` to ``end``, which may lie before it.

    Attributes:
        logarithmic: for positive numbers.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @staticmethod
    def around(values: Iterable[float], start: float, end: float, *, logarithmic: bool = False) -> Axis:
        """Return an axis on which all ``values`` lie, with a little room at either end."""
        scaled = [math.log10(value) if logarithmic else value for value in values]
        room = 0.04 * (max(scaled) - min(scaled)) or 0.5
        low, high = min(scaled) - room, max(scaled) + room
        return Axis(10**low, 10**high, start, end, True) if logarithmic else Axis(low, high, start, end)

    def at(self, value: float) -> float:
        """Return the pixel of ``value``."""
        low, value, high = map(math.log10, (self.low, value, self.high)) if self.logarithmic else (
            self.low, value, self.high,
        )  # fmt: skip
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        """Yield round numbers on the axis."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1,) if len(powers) > _TICKS else (1, 3)
            yield from (d * 10.0**p for p in powers for d in digits if self.low <= d * 10.0**p <= self.high)
            return
        step = _round_up((self.high - self.low) / _TICKS)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        yield from (step * place for place in range(first, last + 1))


def _round_up(value: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is not below ``value``."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * (1 - 1e-9))
