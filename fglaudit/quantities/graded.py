"""Where near misses count by how near they come: quantities of which an attack reads altered values.

Little noise, rounding or clipping puts every answer out of tolerance long before it hides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fglaudit.facts import GRADIENTS, ROWS, Absent, Fact, Field, Sealed
from fglaudit.interfaces import Attack
from fglaudit.quantities.base import Attempt


def graded(attack: Attack, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return ``attempts``, their questions ``graded`` where what ``attack`` reads is altered."""
    if not any(alters(fact, attack) for fact in attempts[0].view.public.facts):
        return attempts
    return [each._replace(question=replace(each.question, graded=True)) for each in attempts]


def alters(fact: Fact, attack: Attack) -> bool:
    """Whether ``fact`` changes rows, gradients, or entries of messages that ``attack`` reads or whose content they are
    computed from."""
    if isinstance(fact.target, Field):
        read = {payload.__name__ for payload in (*type(attack).reads(), *type(attack).computed_from)}
        return fact.target.payload in read and not isinstance(fact, Absent | Sealed)
    return fact.target in (ROWS, GRADIENTS)
