"""What all facts have, and what stands where none explains a change."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from torch import Tensor

from fglaudit.errors import FglauditError, shown
from fglaudit.facts.explaining import Expected, unexplained
from fglaudit.facts.plain import make_plain
from fglaudit.facts.residuals import Spending
from fglaudit.facts.targets import Target


@dataclass(frozen=True)
class Fact:
    """Base of all facts; ``target`` is what it is about.

    They say in :meth:`applied` what they make of a value. A plugin's fact may override :meth:`explains` instead;
    without either it explains everything, and no built-in attack models it.
    """

    target: Target

    def __post_init__(self) -> None:
        """Keep numbers and words by value, and refuse what is no number or no target: what reads facts, the accountant
        and attacks, would fail on it later or take it for a fact about nothing."""
        make_plain(self)
        if not isinstance(self.target, Target):
            raise FglauditError(
                f"a fact is about ROWS, EDGES, GRADIENTS or a Field; got {shown(self.target)}; write e.g."
                " Field('NeighborSums', 'sums', 'up')"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("float", "int") and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise FglauditError(
                    f"{field.name} of {type(self).__name__} must be a number; got {shown(value)}; change it"
                )

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
        merges: whether different values left as the same one, so that how large their noise was cannot be told.
    """

    target: Target
    why: str
    merges: bool = False
