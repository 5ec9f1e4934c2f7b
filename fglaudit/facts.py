"""Typed public statements of what happens to a payload between its owner and the wire: noise, clip, rounding, drop ...

A defense states its facts in the order in which they apply (``DefenseSession.facts``); attacks read them and say which
of them they allow for (``Attack.models``). Nothing is believed unobserved: every fact can be compared with what entered
and left the defense's hooks (:mod:`fglaudit.wire.observed`). The list is closed for what is built in; a plugin may
subclass :class:`Fact`, and nobody models its fact until an attack does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.explaining import Expected, plausible_reports, unexplained
from fglaudit.residuals import Spending
from fglaudit.targets import EDGES as EDGES
from fglaudit.targets import GRADIENTS as GRADIENTS
from fglaudit.targets import ROWS as ROWS
from fglaudit.targets import Edges as Edges
from fglaudit.targets import Field as Field
from fglaudit.targets import Gradients as Gradients
from fglaudit.targets import Rows as Rows
from fglaudit.targets import Target as Target

NORMS = ("L1", "L2", "elementwise")
LARGEST_FLOODING = 12.0
"""Standard deviations of flooding noise beyond which no opened value is off."""
K_ARY = "k-ary response"
"""Kind of :class:`Randomised` one-hot rows: each is kept with probability ``keep``, else it is any other of them."""
_STD = {"gaussian": 1.0, "laplace": math.sqrt(2), "uniform": 1 / math.sqrt(3)}


@dataclass(frozen=True)
class Fact:
    """Base of all facts; ``target`` is what it is about.

    They say in :meth:`applied` what they make of a value. A plugin's fact may override :meth:`explains` instead;
    without either it explains everything, and no built-in attack models it.
    """

    target: Target

    def applied(self, expected: Expected) -> Expected:
        """Return what it makes of what was expected before it."""
        judge = None if type(self).explains is Fact.explains else self.explains
        return replace(expected, opaque=type(self).__name__, judge=judge if expected.judge is None else None)

    def explains(self, before: Tensor, after: Tensor) -> bool:
        """Whether this fact alone can have made ``after`` [P, ...] of ``before`` [P, ...]: size and shape of what it
        changed are tested at level 1e-6."""
        return unexplained(self.applied(Expected.of(before)), after, Spending()) is None


F = TypeVar("F", bound=Fact)


@dataclass(frozen=True)
class Unstated:
    """A change that no fact explains: for the scorer, never shown to attacks.

    Attributes:
        target: what was changed.
        why: in words.
    """

    target: Target
    why: str


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
        parameters: (name, value) pairs of the public parameters of ``kind``.
    """

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def parameter(self, name: str) -> Any:
        """Return the value of the parameter ``name``."""
        return dict(self.parameters)[name]

    def applied(self, expected: Expected) -> Expected:
        if self.kind == K_ARY and not expected.draws:
            judge = partial(plausible_reports, keep=float(self.parameter("keep")))
            return replace(expected, opaque=self.kind, judge=judge if expected.judge is None else None)
        if self.kind != "multi-bit" or expected.draws:
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


@dataclass(frozen=True)
class DroppedEdges(Fact):
    """Cross-client edges of nodes that have fewer than ``fewest`` cross-client neighbours are dropped."""

    fewest: int


@dataclass(frozen=True)
class DegreeBound(Fact):
    """Edges are dropped until no node has more than ``bound`` neighbours, by public priorities drawn from ``seed``."""

    bound: int
    seed: int


@dataclass(frozen=True)
class Merged(Fact):
    """Means over groups replace cross-client neighbours: groups of ``size`` to ``2 size - 1``, consecutive by node id,
    of one neighbourhood each; a smaller neighbourhood is one group."""

    size: int


@dataclass(frozen=True)
class Absent(Fact):
    """Messages of some senders are missing.

    Attributes:
        clients: who they are.
        share: of the senders that vanish, drawn afresh in every round, beside ``clients``.
    """

    clients: tuple[int, ...] = ()
    share: float = 0.0

    def applied(self, expected: Expected) -> Expected:
        return expected  # what is there is as it was

    def missing(self, absent: Tensor, senders: Tensor) -> bool:
        """Whether it accounts for ``absent``, those of ``senders`` whose messages are missing."""
        others = absent[~torch.isin(absent, torch.tensor(self.clients, dtype=absent.dtype))]
        return len(others) <= self.most(len(senders)) - len(self.clients)

    def most(self, senders: int) -> int:
        """Return how many of so many ``senders`` are missing in a round, at most."""
        return len(self.clients) + math.floor(self.share * senders + 0.5)


@dataclass(frozen=True)
class Sealed(Fact):
    """Travels sealed: the server can do linear algebra with it and not read it.

    Attributes:
        scheme: e.g. "bfv", "ckks", "secure-aggregation".
        readers: how many clients must pool their keys to read a message.
        flooding: standard deviation of the noise that opening adds.
        rounding: largest error that encoding adds to an opened value.
    """

    scheme: str
    readers: int = 1
    flooding: float = 0.0
    rounding: float = 0.0

    def applied(self, expected: Expected) -> Expected:
        """What is read when it is opened again."""
        return replace(expected, slack=expected.slack + self.rounding + LARGEST_FLOODING * self.flooding)


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


@dataclass(frozen=True)
class Foreign(Fact):
    """A plugin's own fact, read back from a recording: its class's name and fields. Nobody models it."""

    kind: str
    parameters: tuple[tuple[str, Any], ...] = ()


KINDS: dict[str, type[Fact]] = {
    kind.__name__: kind
    for kind in (
        *(Additive, Clipped, Rounded, Randomised, Scaled, KeptColumns, Sampled, DroppedEdges, DegreeBound, Merged),
        *(Absent, Sealed, Correlated, Memoised, Masked, Foreign),
    )
}
"""Built-in facts by the names of their classes."""


def kind_of(fact: Fact) -> str:
    """Return the name of a fact's class, also of one that was read back without that class."""
    return fact.kind if isinstance(fact, Foreign) else type(fact).__name__


def is_built_in(fact: Fact) -> bool:
    """Whether it is of a class of this module, other than a plugin's fact that was read back."""
    return type(fact) is not Foreign and KINDS.get(type(fact).__name__) is type(fact)


def name_of(payload: str | type) -> str:
    """Return the name by which facts know a payload."""
    return payload if isinstance(payload, str) else payload.__name__


def on(facts: Iterable[Fact], payload: str | type, field: str = "", direction: str | None = None) -> tuple[Fact, ...]:
    """Return the facts about a payload's field, in order; an empty ``field`` or ``direction`` leaves it open."""
    name = name_of(payload)
    return tuple(f for f in facts if isinstance(f.target, Field) and f.target.meets(name, field, direction))


def first(facts: Iterable[Fact], kind: type[F], target: Target | str | type | None = None) -> F | None:
    """Return the first fact of ``kind`` about ``target`` (None: about anything), or None.

    Args:
        target: a target, or a payload or its name for any of its fields.
    """
    for fact in facts:
        if isinstance(fact, kind) and (target is None or _concerns(fact.target, target)):
            return fact
    return None


def _concerns(stated: Target, asked: Target | str | type) -> bool:
    if isinstance(asked, Rows | Edges | Gradients):
        return stated == asked
    if not isinstance(asked, Field):
        asked = Field(name_of(asked))
    return isinstance(stated, Field) and stated.meets(asked.payload, asked.name, asked.direction)
