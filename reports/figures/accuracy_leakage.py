"""The figure that a privacy officer reads: accuracy against the strongest attack on features, per observer.

Points are settings that can be chosen; what bounds them - all data in one place, settings in which nothing on features
was measured, chance - are lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fglaudit.reports.answers import AnswerWord
from fglaudit.reports.answers_table import AnswerRow
from fglaudit.reports.choosing.options import UPPER_BOUND
from fglaudit.reports.figures.frame import LOWEST, Line, Point
from fglaudit.reports.figures.scatter import scatter
from fglaudit.reports.leaks import FEATURES, sd
from fglaudit.reports.numbers import epsilon, percent
from fglaudit.reports.wording.observers import observer_label
from fglaudit.reports.wording.results import interval_words

MOST_LINES = 4
MOST_POINTS = 400
"""More than these are no figure that anybody reads: then the settings are left to the table."""


@dataclass(frozen=True)
class AccuracyLeakage:
    """The figure, drawn for wide and for narrow pages.

    Attributes:
        plots: one drawing per size.
        shapes: protocols of the legend with the numbers of their marks.
        drawn, left_out: how many settings have a point, and how many have none.
        hollow: whether any point is: neither a leak nor its absence is shown there.
        below: whether any point lies below the figure, at whose lower edge it is drawn.
    """

    plots: tuple[Markup, ...]
    shapes: tuple[tuple[str, int], ...]
    drawn: int
    left_out: int
    hollow: bool
    below: bool


def accuracy_leakage_figure(
    rows: Sequence[AnswerRow], observers: Sequence[tuple[str, str]], name: str, sizes: Sequence[tuple[int, int]]
) -> AccuracyLeakage | None:
    """Return the figure in every one of ``sizes``, the first labelled; None if nothing can be drawn."""
    protocols = list(dict.fromkeys(row.protocol for row in rows if row.option))
    points, used, drawn = [], set(), 0
    for row in rows:
        mine = _points(row, observers, protocols) if row.option else []
        points += mine
        drawn += bool(mine)
        used |= {row.protocol} if mine else set()
    if not points or len(points) > MOST_POINTS:
        return None
    lines = _lines(rows, used)
    plots = tuple(scatter(points, name, *size, labelled=i == 0, lines=lines) for i, size in enumerate(sizes))
    shapes = tuple((protocol, index) for index, protocol in enumerate(protocols) if protocol in used)
    hollow, below = any(point.hollow for point in points), any(point.y < LOWEST for point in points)
    return AccuracyLeakage(plots, shapes, drawn, len(rows) - drawn, hollow, below)


def _points(row: AnswerRow, observers: Sequence[tuple[str, str]], protocols: Sequence[str]) -> list[Point]:
    points = []
    for cell in row.cells:
        leak = cell.main.leak if cell is not None and cell.main.quantity == FEATURES else None
        if cell is None or leak is None or leak.advantage is None or row.accuracy is None:
            continue
        about = f"{row.protocol}, {row.defense}\n{observer_label(cell.observer)}: {cell.main.word.value}\n{cell.text}"
        points.append(
            Point(
                x=row.accuracy,
                y=leak.advantage,
                low=leak.low,
                high=leak.high,
                x_sd=sd(row.setting.per_seed("accuracy")),
                colour=observers.index(cell.observer),
                shape=protocols.index(row.protocol),
                label=_label(row),
                tooltip=f"{about}\n{leak.attack}; {interval_words(leak)}\naccuracy {row.accuracy_text}",
                hollow=cell.main.word is AnswerWord.NOT_SHOWN,
            )
        )
    return points


def _label(row: AnswerRow) -> str:
    """The epsilon where one is accounted or claimed, else the defense."""
    accounted, claimed = (row.setting.largest(f"epsilon_{kind}") for kind in ("accounted", "claimed"))
    if accounted is not None:
        return f"ε {epsilon(accounted)}"
    return f"ε {epsilon(claimed)} (claimed)" if claimed is not None else row.defense


def _lines(rows: Sequence[AnswerRow], used: set[str]) -> list[Line]:
    """What bounds the points: centralized models, protocols without a point, and chance."""
    lines = []
    for row in rows:
        if row.accuracy is None or (row.option and row.protocol in used) or not row.setting.undefended:
            continue
        text = UPPER_BOUND if not row.option else f"{row.protocol}: features {_word(row)}"
        lines.append(Line(row.accuracy, f"{text} ({percent(row.accuracy)})"))
    level = next((row.chance for row in rows if row.chance is not None), None)
    named = [] if level is None else [Line(level, f"chance: the largest class ({percent(level)})")]
    return [*lines[: MOST_LINES - 1], *named]


def _word(row: AnswerRow) -> str:
    words = [cell.main.word.value for cell in row.cells if cell is not None and cell.main.quantity == FEATURES]
    return words[0] if words else AnswerWord.NOT_TESTED.value
