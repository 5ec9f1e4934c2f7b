"""Stacks: ``{stack: [{name: gaussian}, {name: dp-sgd}]}`` is short for ``name: stack`` with these parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Defense

KEY = "stack"
_EXAMPLE = "write e.g. {stack: [{name: gaussian, epsilon: 8}, {name: homomorphic-encryption}]}"


def with_parts(entry: Mapping[str, Any], where: str, build: Callable[[dict[str, Any], str], Any]) -> dict[str, Any]:
    """Return ``entry`` with ``name: stack`` and the built ``parts`` in place of the key ``stack``.

    Args:
        build: returns the defense of an entry, given its place; as for any other defense.

    Raises:
        FglauditError: for other keys beside ``stack``, a value that is no list of defenses, or a part that is refused.
    """
    entry = dict(entry)
    if KEY in entry:
        if others := sorted(str(key) for key in entry if key != KEY):
            raise FglauditError(f"{where}: a stack has the key {KEY} alone; got {', '.join(others)} too; {_EXAMPLE}")
        entry = {"name": KEY, "parts": entry[KEY]}
    if entry.get("name") != KEY or "parts" not in entry:
        return entry
    parts = entry["parts"]
    if not isinstance(parts, list | tuple):
        raise FglauditError(f"{where}: a stack lists defenses; got {parts!r}; {_EXAMPLE}")
    return {**entry, "parts": [_built(part, f"{where}: {KEY}[{i}]", build) for i, part in enumerate(parts)]}


def _built(part: Any, where: str, build: Callable[[dict[str, Any], str], Any]) -> Any:
    if isinstance(part, Defense):  # made in Python
        return part
    if isinstance(part, str):
        return build({"name": part}, where)
    if not isinstance(part, Mapping):
        raise FglauditError(f"{where} must be a defense, by name or as a mapping with a name; got {part!r}; {_EXAMPLE}")
    if KEY in part or part.get("name") == KEY:
        raise FglauditError(f"{where}: a stack has no stack inside; list its parts instead")
    return build(dict(part), where)
