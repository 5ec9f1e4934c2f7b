"""Which printed figures were measured, and which of them miss: from stored runs, never from a list of verdicts.

A figure misses that is more than ``POINTS`` from the printed one, on either side: percentage points for accuracies and
percent of the printed figure for all others. ``causes.csv`` names the pages that show by experiment why a row misses;
where the experiment is another reading of the row (column ``reading``, an end of its method), that reading must be
measured and meet the figure, or the cause does not count.
A row that was measured as its authors' code computes it alone, not by the text, is judged by that.
A count of one random partition, whose seed is not published, is explained where our partitions lie on both sides of it,
and so is an accuracy of FedGT's tables, which was measured on one partition and split, where ``ENOUGH`` of ours do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fglaudit.reproduce.measuring import obstacle
from fglaudit.reproduce.papers.data_tables import PARTITIONS
from fglaudit.reproduce.published import (
    AT_THEIR_RATE,
    BY_THEIR_CODE,
    FEW_HIDDEN,
    PARTED_CLUSTERS,
    TITLES,
    Published,
    all_published,
    packaged,
)
from fglaudit.reproduce.status.found import Found, RowKey, key_of, measured

POINTS = 1.5
AIM = 0.05
"""Share of the rows measured that may miss without a cause."""
HIT, EXPLAINED, MISSED, OPEN, BARRED = "within", "missed, cause shown", "missed", "not run", "cannot be run"

OF_A_MACHINE = ("computation-cost", "preprocessing-time")
"""Metrics that no other machine repeats."""
PAGES = {
    "fedgcn": "docs/fedgcn.md",
    "fedgat": "docs/fedgat.md",
    "fedgt": "docs/fedgt-accuracy.md",
    "nfedgnn": "docs/nfedgnn.md",
    "gfl-appnp": "docs/gfl-appnp.md",
}

CAUSES = {
    BY_THEIR_CODE: "with the data, settings and network of the authors' code the figure is met",
    AT_THEIR_RATE: (
        "the text has a learning rate of 0.001, the authors' code 0.01; with that one and all else as the text says,"
        " the figure is met"
    ),
    FEW_HIDDEN: (
        "FedSage+'s own code hides a tenth of a client's nodes where its paper hides half; with a tenth and all else as"
        " the text says, the figure is met"
    ),
}
"""By reading, what it shows where it meets a figure that the text's does not."""
ONE_PARTITION = "the paper counts one partition, whose seed is not published; ours lie on both sides of the figure"
ONE_SPLIT = (
    "the authors' code draws partition and split once for all runs of a row, and theirs are not published; on ours the"
    " accuracy lies on both sides of the figure"
)
ENOUGH = 6
"""Partitions that must have been trained on before ``ONE_SPLIT`` is a cause."""

UNPRINTED_BOUND = (
    "the paper does not print at which mean change GCFL+ parts a cluster; at its authors' bound none is ever parted"
    " here, at a larger one the figure is met or lies between the two"
)


@dataclass(frozen=True)
class Judged:
    """A printed figure and what became of it here.

    Attributes:
        mean: ours; None where there is none.
        runs: behind it.
        page: where the figure stands or, of one that misses, where the cause is shown; "" for plain stored runs.
        reason: the cause of a miss, or why a row cannot be run.
        by_code: of a miss, the mean of the same row as its authors' code computes it, where that was measured.
    """

    row: Published
    mean: float | None
    runs: int
    verdict: str
    page: str
    reason: str
    by_code: float | None = None

    @property
    def gap(self) -> float:
        """Ours minus the printed one."""
        assert self.mean is not None and self.row.mean is not None
        return self.mean - self.row.mean

    @property
    def between(self) -> bool:
        """Whether the printed figure lies between ours and the one of the authors' code: no cause, but no surprise."""
        if self.mean is None or self.by_code is None:
            return False
        assert self.row.mean is not None
        return min(self.mean, self.by_code) <= self.row.mean <= max(self.mean, self.by_code)


def judged(runs: Path = Path("runs") / "reproduce", tables: Iterable[str] = TITLES) -> list[Judged]:
    """Judge every printed figure of ``tables`` but seconds; ``runs`` is the folder of the user's own measurements."""
    found = measured(runs)
    wanted = set(tables)
    return [_judge(row, found) for row in all_published() if row.table in wanted and row.metric not in OF_A_MACHINE]


def off(row: Published, mean: float) -> float:
    """Return how far ``mean`` is from the printed figure: points for accuracies, percent of it for others."""
    assert row.mean is not None
    if row.metric == "accuracy":
        return abs(mean - row.mean)
    return 100 * abs(mean - row.mean) / abs(row.mean) if row.mean else 100 * abs(mean)


def among_enough(found: Found, figure: float) -> bool:
    """Whether ``figure`` lies among runs on ``ENOUGH`` partitions."""
    return found.runs >= ENOUGH and found.around(figure)


def share_unexplained(rows: Sequence[Judged]) -> float:
    """Return the share of the measured rows that miss without a cause; 0 where none is measured."""
    ran = [row for row in rows if row.mean is not None]
    return sum(row.verdict == MISSED for row in ran) / len(ran) if ran else 0.0


def _judge(row: Published, by_key: Mapping[RowKey, Found]) -> Judged:
    def as_read(reading: str) -> Found | None:
        return by_key.get(key_of(row.table, row.key | {"method": row.method + reading}))

    by_text, theirs = as_read(""), as_read(BY_THEIR_CODE)
    found = by_text or theirs
    if found is None:
        reason = obstacle(row)
        return Judged(row, None, 0, BARRED if reason else OPEN, "", reason)
    if off(row, found.mean) <= POINTS:
        return Judged(row, found.mean, found.runs, HIT, found.page, "")
    page, cause = _cause(row, as_read)
    bounds = (
        (by_text, as_read(PARTED_CLUSTERS)),
        (theirs, as_read(PARTED_CLUSTERS + BY_THEIR_CODE)),
    )
    if not cause and (cause := _one_draw(row, found, theirs) or _of_a_bound(row, bounds)):
        page = PAGES["fedgt"]
    verdict = EXPLAINED if cause else MISSED
    by_code = None if theirs is None else theirs.mean
    return Judged(row, found.mean, found.runs, verdict, page or found.page, cause, by_code)


def _one_draw(row: Published, found: Found, by_their_code: Found | None) -> str:
    """Return what explains a figure of one partition that lies among those of several of ours; "" for any other."""
    assert row.mean is not None
    if row.metric in PARTITIONS and found.around(row.mean):
        return ONE_PARTITION
    if row.table.startswith("fedgt") and row.metric == "accuracy":
        for each in (found, by_their_code):
            if each is not None and among_enough(each, row.mean):
                return ONE_SPLIT
    return ""


def _of_a_bound(row: Published, bounds: Iterable[tuple[Found | None, Found | None]]) -> str:
    """Return what explains a figure of GCFL+ if parted clusters meet it, or lie on the other side of it than one.

    Args:
        bounds: per reading one cluster and parted ones, where they were run.
    """
    assert row.mean is not None
    for one, parted in bounds:
        if parted is None:
            continue
        around = one is not None and min(one.mean, parted.mean) <= row.mean <= max(one.mean, parted.mean)
        if around or off(row, parted.mean) <= POINTS:
            return UNPRINTED_BOUND
    return ""


def _cause(row: Published, as_read: Callable[[str], Found | None]) -> tuple[str, str]:
    """Return the page that shows why ``row`` misses and the cause; "" each where none is known.

    Args:
        as_read: given the end of a method, returns the same row as that reading of the paper has it; None where that
            was not measured.
    """

    def met(reading: str) -> bool:
        found = as_read(reading)
        return found is not None and off(row, found.mean) <= POINTS

    for line in packaged("causes.csv"):
        mine = line["table"] == row.table and all(word in row.label for word in line["words"].split("; "))
        if mine and (not line["reading"] or met(line["reading"])):
            return line["page"], line["cause"]
    for reading, cause in CAUSES.items():
        if met(reading):
            return PAGES[row.table.rpartition("-")[0]], cause
    return "", ""
