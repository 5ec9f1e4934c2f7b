"""Sweeps: ``epsilon: {sweep: [1, 4, 8]}`` in a defense of a suite stands for one defense per value.

Several sweeps in one entry, also in the parts of a stack, give every combination; the last one varies fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from fglaudit.errors import FglauditError, near_key, unknown

KEY = "sweep"
MOST = 1000
"""Combinations of one entry; more is taken for a slip of the pen."""

_Place = tuple[str | int, ...]


def expanded(entry: Mapping[str, Any], where: str) -> list[tuple[dict[str, Any], str]]:
    """Return one entry per combination of the values that ``entry`` sweeps, each with its place for messages.

    Raises:
        FglauditError: for a sweep that is no list of different values, or stands where no field is.
    """
    sweeps = list(_sweeps(entry, (), where))
    count = 1
    for _, values in sweeps:
        count *= len(values)
    if count > MOST:
        raise FglauditError(f"{where}: sweeps of one entry give at most {MOST} settings; got {count}; sweep fewer")
    found = []
    for chosen in itertools.product(*(values for _, values in sweeps)):
        setting: Any = entry
        words = []
        for (place, _), value in zip(sweeps, chosen, strict=True):
            setting = _with(setting, place, value)
            words.append(f"{_named(place)}={value}")
        found.append((dict(setting), f"{where} ({', '.join(words)})" if words else where))
    return found


def _sweeps(value: Any, place: _Place, where: str) -> Iterator[tuple[_Place, list[Any]]]:
    """Yield the sweeps within ``value`` in the order in which they are written."""
    if isinstance(value, Mapping) and KEY in value:
        yield place, _checked(value, place, where)
    elif isinstance(value, Mapping):
        if place and not isinstance(place[-1], int) and len(value) == 1 and (slip := near_key(value, KEY)):
            raise FglauditError(f"{where}: field {_named(place)!r}: {unknown('key', slip, [KEY])}")
        for key, inner in value.items():
            yield from _sweeps(inner, (*place, str(key)), where)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _sweeps(inner, (*place, number), where)


def _checked(sweep: Mapping[str, Any], place: _Place, where: str) -> list[Any]:
    name = f"{where}: field {_named(place)!r}" if place else where
    example = "write e.g. epsilon: {sweep: [1, 4, 8]}"
    if not place or isinstance(place[-1], int) or place[-1] in ("name", "stack"):
        raise FglauditError(
            f"{name}: a sweep stands in place of a field's value, not of a defense, its name or its parts; {example}"
        )
    if len(sweep) > 1:
        others = ", ".join(str(key) for key in sweep if key != KEY)
        raise FglauditError(f"{name}: a sweep has the key {KEY} alone; got {others} beside it; {example}")
    values = sweep[KEY]
    if not isinstance(values, list | tuple) or not values:
        raise FglauditError(f"{name}: a sweep lists one value or more; got {values!r}; {example}")
    if any(isinstance(value, Mapping) and KEY in value for value in values):
        raise FglauditError(f"{name}: a sweep has no sweep inside; got {values!r}; {example}")
    repeated = [value for number, value in enumerate(values) if value in values[:number]]
    if repeated:
        raise FglauditError(f"{name}: the values of a sweep must differ; {repeated[0]!r} is repeated; remove one")
    return list(values)


def _with(value: Any, place: _Place, chosen: Any) -> Any:
    """Return ``value`` with ``chosen`` at ``place``, without changing it."""
    if not place:
        return chosen
    head, rest = place[0], place[1:]
    if isinstance(value, Mapping):
        return {key: _with(inner, rest, chosen) if str(key) == head else inner for key, inner in value.items()}
    return [_with(inner, rest, chosen) if number == head else inner for number, inner in enumerate(value)]


def _named(place: _Place) -> str:
    """``("stack", 0, "epsilon")`` as ``stack[0].epsilon``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
