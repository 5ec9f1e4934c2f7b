"""Facts about what becomes of values themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fglaudit.errors import FglauditError, shown
from fglaudit.facts.base import Fact
from fglaudit.facts.explaining import Expected, plausible_reports

NORMS = ("L1", "L2", "elementwise")

K_ARY = "k-ary response"
"""Kind of :class:`Randomised` one-hot rows: each is kept with probability ``keep``, else it is any other of them."""
MULTI_BIT = "multi-bit"
"""Kind of :class:`Randomised` rows: bits of some features of each."""
STATED: Mapping[str, tuple[str, ...]] = {
    K_ARY: ("keep", "classes"),
    MULTI_BIT: ("sampled_features", "bit_epsilon", "low", "high"),
}
"""What kinds that are known here must state, each a number."""


@dataclass(frozen=True)
class Clipped(Fact):
    """Scaled down to a norm of at most ``bound``; "elementwise": every entry cut to [-bound, bound].

    Attributes:
        norm: "L1", "L2" or "elementwise".
        per: what has the norm: "message" (an entry of the leading axis), "row" (of the last axis), "example" (a loss's
            gradient).
        around: "zero", or "received": what is clipped is the difference to the values of this payload that the server
            last sent to the sender.
    """

    norm: str
    bound: float
    per: str = "message"
    around: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm not in NORMS:
            raise FglauditError(f"the norm of a clip is one of {', '.join(NORMS)}; got {self.norm!r}; change it")
        if self.per not in ("message", "row", "example") or self.around not in ("zero", "received"):
            raise FglauditError(
                "a clip is per message, row or example, around zero or what was received; got per "
                f"{self.per!r} around {self.around!r}; change it"
            )

    def applied(self, expected: Expected) -> Expected:
        return expected.clipped(self.norm, self.bound, by_row=self.per == "row", around=self.around == "received")


@dataclass(frozen=True)
class Rounded(Fact):
    """Rounded to a grid of evenly spaced levels.

    Attributes:
        step: between levels; None: the range of each message over ``levels - 1``.
        center: one of the levels; None: the smallest value of each message.
        levels: how many there are; None: any number.
        stochastic: up or down with the probabilities that make it unbiased, rather than to the nearest level.
    """

    step: float | None = None
    center: float | None = 0.0
    levels: int | None = None
    stochastic: bool = False

    def applied(self, expected: Expected) -> Expected:
        return expected.rounded(self.center, self.step, self.levels, self.stochastic)


@dataclass(frozen=True)
class Randomised(Fact):
    """Replaced by random reports that depend on the values otherwise than by a sum, e.g. multi-bit reports of rows.

    Attributes:
        parameters: (name, value) pairs of the public parameters of ``kind``; of kinds that are known here those of
            :data:`STATED` at the least.
    """

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in STATED.get(self.kind, ()):
            value = self.parameter(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise FglauditError(
                    f"{name} of random reports of kind {self.kind!r} is a number; got {shown(value)}; correct it"
                )

    def parameter(self, name: str) -> Any:
        """Return the value of the parameter ``name``.

        Raises:
            FglauditError: it is not stated.
        """
        try:
            return dict(self.parameters)[name]
        except (KeyError, TypeError, ValueError) as error:
            raise FglauditError(
                f"random reports of kind {self.kind!r} must state {name}; got {shown(self.parameters)}; add it to"
                " parameters, as (name, value)"
            ) from error

    def applied(self, expected: Expected) -> Expected:
        if self.kind == K_ARY and not expected.draws:
            judge = partial(plausible_reports, keep=float(self.parameter("keep")))
            return replace(expected, opaque=self.kind, judge=judge if expected.judge is None else None)
        if self.kind != MULTI_BIT or expected.draws:
            return replace(expected, opaque=self.kind)
        return replace(expected, reports=dict(self.parameters))


@dataclass(frozen=True)
class Scaled(Fact):
    """``offset + factor x value`` in place of every value."""

    offset: float = 0.0
    factor: float = 1.0

    def applied(self, expected: Expected) -> Expected:
        return expected.scaled(self.offset, self.factor)


@dataclass(frozen=True)
class KeptColumns(Fact):
    """Zero outside the columns ``ids`` of the last axis."""

    ids: tuple[int, ...]

    def applied(self, expected: Expected) -> Expected:
        return expected.without_columns(self.ids)


@dataclass(frozen=True)
class Sampled(Fact):
    """Each example (or entry of the leading axis) is used with probability ``rate``, otherwise it is zero."""

    rate: float

    def applied(self, expected: Expected) -> Expected:
        return replace(expected, sampled=self.rate * expected.sampled)
