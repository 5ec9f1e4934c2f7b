"""Sweeps in one phrase: settings that differ in one number are named once, with the range of that number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from fglaudit.reports.numbers import percent
from fglaudit.reports.summary import Setting

FEWEST = 3
"""Settings that are worth a phrase of their own."""


class Named(NamedTuple):
    """Settings with one name: one, or a sweep, e.g. ``gaussian epsilon=0.5 to 16``."""

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
        place, members = max(sweeps, key=lambda sweep: len(sweep[1]), default=(0, [first]))
        if len(members) < FEWEST:
            members = [first]
        else:
            values = sorted((_number(name(s).split(" ")[place]) or 0.0, name(s).split(" ")[place]) for s in members)
            comma = "," * values[-1][1].endswith(",")
            words[place] = f"{values[0][1].rstrip(',')} to {values[-1][1].rstrip(',').partition('=')[2]}{comma}"
        found.append(Named(" ".join(words), tuple(members)))
        left = [s for s in left if all(s is not member for member in members)]
    return found


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
