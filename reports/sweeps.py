"""Sweeps in one phrase: settings that differ in one number are named once, with all values of that number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from fglaudit.reports.numbers import percent
from fglaudit.reports.summary import Setting

FEWEST = 3
"""Settings that are worth a phrase of their own."""
MOST_LISTED = 6
"""Values that are listed one by one."""


class Named(NamedTuple):
    """Settings with one name: one, or a sweep, e.g. ``gaussian epsilon=0.5/4/16``."""

    name: str
    settings: tuple[Setting, ...]

    def accuracy(self) -> str:
        """Return the accuracy, of several settings from the lowest to the highest mean."""
        if len(self.settings) == 1:
            return self.settings[0].spread()
        means = [setting.accuracy for setting in self.settings]
        low, high = percent(min(means)), percent(max(means))
        return low if low == high else f"{low} to {high}"


def named(
    settings: Sequence[Setting], name: Callable[[Setting], str], alike: Callable[[Setting], Hashable] = lambda _: None
) -> list[Named]:
    """Return ``settings`` by name, sweeps in the place of their first member.

    Args:
        name: of a setting, words of which ``field=number`` may vary.
        alike: what is said of a setting; settings of which other things are said stand apart.
    """
    left, found = list(settings), []
    while left:
        first = left[0]
        words, said = name(first).split(" "), alike(first)
        sweeps = [
            (place, [s for s in left if alike(s) == said and _differs_at(place, words, name(s).split(" "))])
            for place, word in enumerate(words)
            if _number(word) is not None
        ]
        place, members = max(sweeps, key=lambda sweep: len(_values(sweep[0], sweep[1], name)), default=(0, [first]))
        values = _values(place, members, name)
        if len(values) < FEWEST:
            members = [s for s in left if name(s) == name(first) and alike(s) == said]
        else:
            words[place] = _listed(words[place], values)
        found.append(Named(" ".join(words), tuple(members)))
        left = [s for s in left if all(s is not member for member in members)]
    return found


def _values(place: int, settings: Sequence[Setting], name: Callable[[Setting], str]) -> list[str]:
    """Return the numbers at ``place`` as they are written, smallest first, each once."""
    written = {name(setting).split(" ")[place] for setting in settings}
    return [word.rstrip(",").partition("=")[2] for word in sorted(written, key=lambda word: _number(word) or 0.0)]


def _listed(word: str, values: Sequence[str]) -> str:
    """Return ``word`` with all values; of many the first and last, and how many there are. A range alone would name
    settings between them of which something else is said."""
    ends = f"{values[0]} to {values[-1]} ({len(values)} values)"
    said = "/".join(values) if len(values) <= MOST_LISTED else ends
    return f"{word.partition('=')[0]}={said}{',' * word.endswith(',')}"


def _differs_at(place: int, words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two names are one but for the number at ``place``."""
    if len(words) != len(others) or _number(others[place]) is None:
        return False
    key = words[place].partition("=")[0]
    rest = [(a, b) for i, (a, b) in enumerate(zip(words, others, strict=True)) if i != place]
    return others[place].partition("=")[0] == key and all(a == b for a, b in rest)


def _number(word: str) -> float | None:
    """Return the number of ``field=number``; None of other words."""
    key, _, value = word.rstrip(",").partition("=")
    try:
        return float(value) if key and value else None
    except ValueError:
        return None
