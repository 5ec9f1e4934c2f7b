"""Rows of a figure, placed: in which panel, on which line, how far to the right.

A panel per metric, data set and partition, a line per method. To the right lies the last number that the setting
names, or the number of clients. A method without such a number, as one that is trained centrally, is a level line in
the panels of its data set. Where nothing varies, accuracies lie over the bytes that were sent, a point per method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.reproduce.papers.curve_rows import SENT, SENT_BESIDE_MODELS
from fglaudit.reproduce.rounds import numbers
from fglaudit.reproduce.run import Compared

CLIENTS, CENTRALIZED = "clients", "centralized"


@dataclass(frozen=True)
class Panel:
    """What the lines of a panel have in common; ``axis`` is what lies to the right."""

    metric: str
    unit: str
    dataset: str
    partition: str
    clients: str
    axis: str

    @property
    def title(self) -> str:
        clients = f"{self.clients} clients" if self.clients else ""
        return ", ".join(filter(None, (self.dataset, self.partition, clients)))

    @property
    def upwards(self) -> tuple[str, str]:
        """Panels in which it is the same have one scale upwards."""
        return self.metric, self.dataset

    def holds(self, other: Panel) -> bool:
        """Whether a method without a number, of ``other``, is compared with in this panel."""
        same = (self.metric, self.dataset) == (other.metric, other.dataset)
        return same and other.partition in (CENTRALIZED, self.partition)


@dataclass(frozen=True)
class Line:
    """The rows of a method in a panel, from left to right; ``xs`` is empty of a level line."""

    method: str
    rows: tuple[Compared, ...]
    xs: tuple[float, ...]


def panels_of(rows: Sequence[Compared]) -> dict[Panel, list[Line]]:
    """Return the lines of every panel, of the rows that have a figure; nothing where there is none to draw against."""
    found: dict[tuple[Panel, str], list[tuple[float, Compared]]] = {}
    measured = [row for row in rows if row.values]
    for row in measured:
        panel, x = _place(row)
        found.setdefault((panel, row.row.method), []).append((x, row))
    varying = {panel for (panel, _), points in found.items() if len({x for x, _ in points}) > 1}
    if not varying:
        return _by_cost(measured)
    panels: dict[Panel, list[Line]] = {panel: [] for panel, _ in found if panel in varying}
    for (panel, method), points in found.items():
        points.sort(key=lambda point: point[0])
        xs, each = zip(*points, strict=True)
        compared = [] if panel in varying else [panels[each] for each in varying if each.holds(panel)]
        for lines in compared:
            lines.append(Line(method, each, ()))
        if not compared:
            panels.setdefault(panel, []).append(Line(method, each, xs))
    return panels


def _place(row: Compared) -> tuple[Panel, float]:
    """Return the panel of ``row`` and where it lies to the right."""
    paper, named = row.row, numbers(row.row.setting)
    if not named:
        return Panel(paper.metric, paper.unit, paper.dataset, paper.setting, "", CLIENTS), float(paper.clients or 0)
    (axis, x), partition = named.popitem(), paper.setting.split(", ")[0]
    kept = ", ".join((partition, *(f"{name} {value}" for name, value in named.items())))
    return Panel(paper.metric, paper.unit, paper.dataset, kept, paper.clients, axis), float(x)


def _by_cost(rows: Sequence[Compared]) -> dict[Panel, list[Line]]:
    """Return panels of accuracies over bytes, where rows of both are there; none where fewer than two of them differ.

    A row's own gigabytes are not taken: they count what passes between two clients at both."""
    sent = {(row.row.metric, *_method(row)): row for row in rows if row.row.metric in (SENT, SENT_BESIDE_MODELS)}
    panels: dict[Panel, list[Line]] = {}
    for (metric, *method), cost in sent.items():
        for row in rows:
            if row.row.metric == "accuracy" and _method(row) == tuple(method):
                paper = row.row
                axis = f"{metric}, {cost.row.unit}"
                panel = Panel("accuracy", paper.unit, paper.dataset, paper.setting, paper.clients, axis)
                panels.setdefault(panel, []).append(Line(paper.method, (row,), (cost.mean or 0.0,)))
    return {panel: lines for panel, lines in panels.items() if len({line.xs for line in lines}) > 1}


def _method(row: Compared) -> tuple[str, ...]:
    """Return what the figures of one training have in common."""
    return row.row.dataset, row.row.setting, row.row.clients, row.row.method
