"""True and rebuilt rows side by side: of the strongest attack on features per setting and observer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.quantities.rows.examples import RowExample
from fglaudit.reports.labels import Labels
from fglaudit.reports.leaks import FEATURES, Leak
from fglaudit.reports.summary import Setting


@dataclass(frozen=True)
class Shown:
    """What one attack made of a few rows, in the first seed that has them."""

    setting: str
    observer: tuple[str, str]
    attack: str
    seed: int
    rows: tuple[RowExample, ...]


def shown_rows(settings: Sequence[Setting], labels: Labels, observers: Sequence[tuple[str, str]]) -> list[Shown]:
    """Return the rows of the strongest attack on features, by setting and observer; none where none was rebuilt."""
    found = []
    for setting in settings:
        for observer in observers:
            leak = setting.strongest_by_quantity(observer).get(FEATURES)
            if leak is not None and (shown := _shown(setting, leak, labels)) is not None:
                found.append(shown)
    return found


def _shown(setting: Setting, leak: Leak, labels: Labels) -> Shown | None:
    for record in setting.records:
        if rows := record.examples.get(leak.findings[0].key):
            parsed = tuple(RowExample.from_json(row) for row in rows)
            return Shown(labels.setting(setting), leak.observer, leak.attack, record.seed, parsed)
    return None


def columns(row: RowExample, kind: str) -> tuple[str, int]:
    """Return which columns of a binary row are "right", "missed" or "wrong" (rebuilt and not there), and how many."""
    wanted = {"right": (True, True), "missed": (True, False), "wrong": (False, True)}[kind]
    found = [column for column, true, rebuilt, _ in row.entries if (true >= 0.5, rebuilt >= 0.5) == wanted]
    return ", ".join(map(str, found)), len(found)
