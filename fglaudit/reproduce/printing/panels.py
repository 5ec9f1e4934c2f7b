"""Rows of a figure, placed: in which panel, on which line, how far to the right.

A panel per metric, data set and partition, a line per method. To the right lies the last number that the setting
names, or the number of clients. A method without such a number, as one that is trained centrally, is a level line in
the panels of its data set. Where nothing varies, accuracies lie over the gigabytes that were sent, a point per method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.reproduce.rounds import numbers
from fglaudit.reproduce.run import Compared

CLIENTS, GIGABYTES, CENTRALIZED = "clients", "gigabytes sent", "centralized"


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
    """Return panels of accuracies over bytes; none where fewer than two rows differ."""
    panels: dict[Panel, list[Line]] = {}
    for row in rows:
        if row.row.metric == "accuracy" and row.gigabytes > 0:
            paper = row.row
            panel = Panel("accuracy", paper.unit, paper.dataset, paper.setting, paper.clients, GIGABYTES)
            panels.setdefault(panel, []).append(Line(row.row.method, (row,), (row.gigabytes,)))
    return {panel: lines for panel, lines in panels.items() if len({line.xs for line in lines}) > 1}
