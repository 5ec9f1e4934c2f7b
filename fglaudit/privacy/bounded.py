"""How large a value can be after what facts say was done to it: what sensitivities are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fglaudit.facts import Absent, Clipped, Fact, KeptColumns, Masked, Rounded, Sampled, Scaled, Sealed, is_built_in

_SHRINK: tuple[type[Fact], ...] = (KeptColumns, Sampled, Absent, Sealed, Masked)
"""What makes no norm larger, and nothing random that an accountant would have to know of."""


@dataclass(frozen=True)
class Bounded:
    """Bounds on the norms of one value; none at first.

    Attributes:
        per: what has the norm, see :class:`fglaudit.facts.Clipped`.
        bounds: by norm.
        around: of the clips.
        changed: by facts other than clips.
        strange: name of a fact whose effect on norms is not known.
    """

    per: str
    bounds: dict[str, float] = field(default_factory=dict)
    around: str = "zero"
    changed: bool = False
    strange: str = ""

    @staticmethod
    def by(facts: Iterable[Fact], per: str) -> Bounded:
        """Return what ``facts``, in order, make of a value."""
        found = Bounded(per)
        for fact in facts:
            found = found.after(fact)
        return found

    def after(self, fact: Fact) -> Bounded:
        """Return what ``fact`` leaves of the bounds. A clip bounds what was rounded before as it bounds all else."""
        if self.strange == Rounded.__name__ and isinstance(fact, Clipped) and is_built_in(fact):
            return replace(Bounded(self.per, changed=True).after(fact), changed=True)
        if self.strange:
            return self
        if isinstance(fact, Clipped) and is_built_in(fact):
            if fact.per != self.per or (fact.around != self.around and self.bounds):
                return replace(self, strange=f"{type(fact).__name__} per {fact.per}")
            smaller = min(fact.bound, self.bounds.get(fact.norm, fact.bound))
            return replace(self, bounds={**self.bounds, fact.norm: smaller}, around=fact.around)
        if isinstance(fact, Scaled) and is_built_in(fact) and fact.offset == 0:
            bounds = {norm: bound * abs(fact.factor) for norm, bound in self.bounds.items()}
            return replace(self, bounds=bounds, changed=True)
        if isinstance(fact, _SHRINK) and is_built_in(fact):
            return replace(self, changed=self.changed or isinstance(fact, Sampled | KeptColumns))
        return replace(self, strange=type(fact).__name__)
