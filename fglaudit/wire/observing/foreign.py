"""Which sessions were not written here: their hooks are asked again, and what they send is not believed unobserved."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from fglaudit.interfaces import DefenseSession

_DEEPEST = 4
_HOOKS = ("prepare", "local_update", "release")


def is_foreign(session: DefenseSession, depth: int = 0) -> bool:
    """Whether ``session``, or one that it holds, is of a class that was not written here."""
    kind = type(session)
    home = sys.modules.get(kind.__module__)
    here = kind.__module__.partition(".")[0] == "fglaudit" and getattr(home, kind.__name__, None) is kind
    if not here or any(name in vars(session) for name in _HOOKS):
        return True
    parts = [part for held in vars(session).values() for part in _sessions(held)]
    return depth < _DEEPEST and any(is_foreign(part, depth + 1) for part in parts)


def _sessions(held: object) -> list[DefenseSession]:
    if isinstance(held, Mapping):
        held = list(held.values())
    listed = held if isinstance(held, list | tuple) else [held]
    return [part for part in listed if isinstance(part, DefenseSession)]
