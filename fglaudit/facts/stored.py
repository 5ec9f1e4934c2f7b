"""Facts and their targets as plain data, and back: what a recording keeps of a defense's statements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fglaudit.errors import FglauditError
from fglaudit.facts.base import Fact
from fglaudit.facts.lookup import KINDS
from fglaudit.facts.targets import EDGES, GRADIENTS, ROWS, Field, Target

_PLAIN: dict[str, Target] = {"rows": ROWS, "edges": EDGES, "gradients": GRADIENTS}


def to_json(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Return facts as plain data."""
    return [fact_to_json(fact) for fact in facts]


def from_json(stored: Iterable[Mapping[str, Any]]) -> tuple[Fact, ...]:
    """Rebuild facts from :func:`to_json`; a plugin's own ones as :class:`Foreign`."""
    return tuple(fact_from_json(entry) for entry in stored)


def fact_to_json(fact: Fact) -> dict[str, Any]:
    """Return one fact as plain data."""
    where = target_to_json(fact.target)
    values = {f.name: getattr(fact, f.name) for f in dataclasses.fields(fact) if f.name != "target"}
    kind = type(fact).__name__
    if KINDS.get(kind) is not type(fact):  # also a plugin's class that has a built-in one's name
        kind, values = "Foreign", {"kind": kind, "parameters": tuple(values.items())}
    return {"fact": kind, "target": where, **values}


def fact_from_json(stored: Mapping[str, Any]) -> Fact:
    """Rebuild one fact from :func:`fact_to_json`.

    Raises:
        FglauditError: if its kind is not known.
    """
    values = {name: _frozen(value) for name, value in stored.items()}
    kind, where = values.pop("fact"), values.pop("target")
    if kind not in KINDS:
        raise FglauditError(f"a stored fact is one of {', '.join(KINDS)}; got {kind!r}; record the run again")
    return KINDS[kind](target_from_json(where), **values)


def target_to_json(target: Target) -> str | dict[str, Any]:
    """Return a target as plain data."""
    plain = {of: name for name, of in _PLAIN.items()}
    return dataclasses.asdict(target) if isinstance(target, Field) else plain[target]


def target_from_json(stored: str | dict[str, Any]) -> Target:
    """Rebuild a target from :func:`target_to_json`."""
    return _PLAIN[stored] if isinstance(stored, str) else Field(**stored)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value
