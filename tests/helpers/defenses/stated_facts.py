"""What a session states, for tests that compare it with what it does."""

from __future__ import annotations

from typing import TypeVar

from fglaudit.facts import Fact, Target, first
from fglaudit.interfaces import DefenseSession

F = TypeVar("F", bound=Fact)


def stated(session: DefenseSession, kind: type[F], target: Target | str | type | None = None) -> F:
    """Return the first fact of ``kind`` about ``target``, see ``fglaudit.facts.first``; there must be one."""
    found = first(session.facts(), kind, target)
    assert found is not None, f"{type(session).__name__} states no {kind.__name__}"
    return found
