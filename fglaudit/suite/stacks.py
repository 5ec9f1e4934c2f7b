"""Stacks in a suite: ``{stack: [{name: gaussian}, {name: dp-sgd}]}`` is short for ``name: stack`` with these parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fglaudit.errors import FglauditError

KEY = "stack"
_EXAMPLE = "write e.g. {stack: [{name: gaussian, epsilon: 8}, {name: homomorphic-encryption}]}"


def named_parts(entry: Mapping[str, Any], where: str, near: Callable[[str], str]) -> dict[str, Any]:
    """Return ``entry`` with ``name: stack`` and ``parts`` in place of the key ``stack``.

    Args:
        near: returns a plugin's name with the path of its file as it is found from here.

    Raises:
        FglauditError: for other keys beside ``stack``, or a value that is no list of defenses.
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
    return {
        **entry,
        "parts": [_near(part, f"{where}: part {number} of the stack", near) for number, part in enumerate(parts)],
    }


def _near(part: Any, where: str, near: Callable[[str], str]) -> Any:
    if isinstance(part, str):
        return near(part)
    if not isinstance(part, Mapping):
        raise FglauditError(f"{where} must be a defense, by name or as a mapping with a name; got {part!r}; {_EXAMPLE}")
    if KEY in part or part.get("name") == KEY:
        raise FglauditError(f"{where}: a stack has no stack inside; list its parts instead")
    name = part.get("name")
    return {**part, "name": near(name)} if isinstance(name, str) else dict(part)
