"""Why defenses cannot be stacked in the order in which they are listed: what each of them promises, or states, would
not hold. Rows and edges are prepared first, then messages are made, then changed, then sealed, whatever the list says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fglaudit.facts import (
    EDGES,
    ROWS,
    Additive,
    Clipped,
    Fact,
    Field,
    KeptColumns,
    Merged,
    Randomised,
    Sealed,
)
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import Payload

_TOTALS_OPEN = ("secure-aggregation",)
"""Schemes whose totals the server reads."""
_HOOKS = ("prepare", "merge", "local_update", "release", "seal")


@dataclass(frozen=True)
class Part:
    """A defense of a stack, bound."""

    defense: Defense
    session: DefenseSession

    @property
    def name(self) -> str:
        return self.defense.name

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.session.facts()

    def overrides(self, hook: str) -> bool:
        """Whether its session does anything in ``hook``."""
        return getattr(type(self.session), hook) is not getattr(DefenseSession, hook)

    def targets(self, *kinds: type[Fact]) -> tuple[Field, ...]:
        """Return the payload fields about which it states facts of these kinds."""
        return tuple(f.target for f in self.facts if isinstance(f, kinds) and isinstance(f.target, Field))

    def by_row_norm(self) -> bool:
        """Whether noise on its messages is calibrated to the norm of rows, rather than to a clip of the messages."""
        clipped = self.targets(Clipped)
        rows = any(isinstance(f, Clipped) and f.target == ROWS for f in self.facts)
        return rows and any(not _meet((target,), clipped) for target in self.targets(Additive))


def conflict(parts: Sequence[Part]) -> str | None:
    """Return why ``parts`` cannot be stacked in this order, or None."""
    for part in parts:
        if not part.facts and (done := [hook for hook in _HOOKS if part.overrides(hook)]):
            return (
                f"{part.name} does something in {', '.join(done)} and states no facts, so that its place in an order is"
                " unknown; state them in facts()"
            )
    found = itertools.chain(_twice(parts), *(_pair(a, b) for a, b in itertools.combinations(parts, 2)))
    return next(found, None)


def _twice(parts: Sequence[Part]) -> Iterator[str]:
    """Yield what only one part can do, and two do."""
    alone: tuple[tuple[str, Callable[[Part], bool]], ...] = (
        ("seal messages, and each opens its own alone", lambda p: p.overrides("seal")),
        ("merge neighbours, and a group has one mean", lambda p: p.overrides("merge")),
        ("change gradients, and what the first returns is a sum already", lambda p: p.session.updates()),
        (
            "randomise rows, and the second's reports would be of reports",
            lambda p: any(isinstance(f, Additive | Randomised) and f.target == ROWS for f in p.facts),
        ),
    )
    for what, does in alone:
        names = [part.name for part in parts if does(part)]
        if len(names) > 1:
            yield f"{' and '.join(names)} both {what}; keep one of them"


def _pair(earlier: Part, later: Part) -> Iterator[str]:
    """Yield why ``later`` cannot come after ``earlier``."""
    before, behind = earlier.name, later.name
    for payload in _registered(later):
        if earlier.session.seals(payload) and later.session.changes(payload):
            yield f"{before} seals {payload.__name__} before {behind} changes it; list {before} last"
    for one, other in ((earlier, later), (later, earlier)):
        for target in one.targets(Additive):
            if target.direction == "down" and _unread(target, other):
                yield (
                    f"{one.name} has the server add noise to {target.payload}, which {other.name} hides from it; let"
                    " clients add the noise, or leave it unsealed"
                )
    noised = earlier.targets(Additive)
    for target in noised:
        if _meet((target,), later.targets(Additive)):
            yield f"{before} and {behind} both add noise to {target.payload}; keep one, with the smaller epsilon"
        elif _meet((target,), later.targets(Clipped)):
            yield f"{behind} would clip the noise that {before} adds to {target.payload}; list {behind} first"
        elif _makes(later, target.payload):
            yield (
                f"{behind} changes what {target.payload} is made of, before {before} adds noise to it; list {behind}"
                " first"
            )
    if earlier.by_row_norm() and any(
        f.target == ROWS and not isinstance(f, Clipped | KeptColumns) for f in later.facts
    ):
        yield f"{before} calibrates noise to rows that it clips, and {behind} changes them later; list {behind} first"
    changes = (_changes_clipped(earlier), _changes_clipped(later))
    if common := sorted(changes[0] & changes[1]):
        yield f"{before} and {behind} both clip changes of {common[0]}; keep one of them"


def _makes(part: Part, payload: str) -> bool:
    """Whether it changes what the payload is made of, rather than the payload, of which it then states facts."""
    changed = any(kind.__name__ == payload for kind in _registered(part))
    return changed and not any(target.payload == payload for target in part.targets(Fact))


def _changes_clipped(part: Part) -> set[str]:
    """Return the payloads of which it clips the difference to what was received."""
    return {
        f.target.payload
        for f in part.facts
        if isinstance(f, Clipped) and f.around == "received" and isinstance(f.target, Field)
    }


def _unread(target: Field, part: Part) -> bool:
    """Whether ``part`` seals the payload of ``target`` so that the server never reads it, not even in sum."""
    sealed = (f for f in part.facts if isinstance(f, Sealed) and f.scheme not in _TOTALS_OPEN)
    return any(isinstance(f.target, Field) and f.target.payload == target.payload for f in sealed)


def _registered(part: Part) -> list[type[Payload]]:
    return [kind for kind in Payload.registry.values() if part.session.changes(kind)]


def _meet(some: Sequence[Field], others: Sequence[Field]) -> bool:
    return any(a.meets(b.payload, b.name, b.direction) for a in some for b in others)


def changes_edges(part: Part) -> bool:
    """Whether the part drops edges or merges neighbours."""
    return any(f.target == EDGES for f in part.facts)


def merges(part: Part) -> bool:
    """Whether the part merges neighbours."""
    return any(isinstance(f, Merged) for f in part.facts)
