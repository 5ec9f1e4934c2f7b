"""Facts by name, and those about a target."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

from fglaudit.facts.base import F, Fact
from fglaudit.facts.edges import DegreeBound, DroppedEdges, Merged
from fglaudit.facts.messages import Absent, Foreign, Sealed
from fglaudit.facts.noise import Additive, Correlated, Masked, Memoised
from fglaudit.facts.targets import Edges, Field, Gradients, Rows, Target
from fglaudit.facts.values import Clipped, KeptColumns, Randomised, Rounded, Sampled, Scaled

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


def rebuilt(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return facts of one's own with the same plain numbers: who stated them may edit theirs later."""
    return tuple(replace(fact) if is_built_in(fact) else deepcopy(fact) for fact in facts)


def name_of(payload: str | type) -> str:
    """Return the name by which facts know a payload."""
    return payload if isinstance(payload, str) else payload.__name__


def on(facts: Iterable[Fact], payload: str | type, field: str = "", direction: str | None = None) -> tuple[Fact, ...]:
    """Return the facts about a payload's field, in order; an empty ``field`` or ``direction`` leaves it open."""
    name = name_of(payload)
    return tuple(f for f in facts if isinstance(f.target, Field) and f.target.meets(name, field, direction))


def before_noise(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the facts, in order, without those about values that noise or random reports came to before: what is done
    then bounds nothing of what the noise hides."""
    kept: list[Fact] = []
    drawn: list[Target] = []
    for fact in facts:
        if not any(overlap(fact.target, target) for target in drawn):
            kept.append(fact)
        if isinstance(fact, Additive | Randomised):
            drawn.append(fact.target)
    return tuple(kept)


def overlap(one: Target, other: Target) -> bool:
    """Whether two targets have a field in common."""
    if isinstance(one, Field) and isinstance(other, Field):
        return one.meets(other.payload, other.name, other.direction)
    return one == other


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
