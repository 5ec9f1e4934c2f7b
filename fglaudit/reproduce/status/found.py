"""What was measured of the rows of the papers' tables, and where that stands.

Three sources, all CSV: ``stored.csv``, a line per run of ``fglaudit reproduce`` that ships with the package; the user's
own ``runs/reproduce/*/measurements.csv``; and ``recorded.csv``, means of earlier runs whose single figures were not
kept, each with the page where it stands. Of a row that has several, the source with the most runs counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.published import TITLES, packaged
from fglaudit.reproduce.run import KEY, VALUES

RowKey = tuple[str, ...]
"""What one measurement is of: the paper, and the row's columns."""


@dataclass(frozen=True)
class Found:
    """What one source has of a row.

    Attributes:
        spread: standard deviation of the runs; None of one run, or where it was not kept.
        page: where it stands; "" for stored runs.
        low, high: the smallest and the largest run.
    """

    mean: float
    runs: int
    spread: float | None
    page: str
    low: float
    high: float

    def around(self, figure: float) -> bool:
        """Whether ``figure`` lies between the smallest and the largest run."""
        return self.low <= figure <= self.high


def key_of(table: str, key: Mapping[str, str]) -> RowKey:
    """Return what the row of ``table`` is called here.

    A row that two tables print is one measurement: FedGT's Table 11 calls Table 1's clients the default.
    """
    named = {**key, "setting": {"default": "non-overlapping"}.get(key["setting"], key["setting"])}
    return (table.rpartition("-")[0], *(named[column] for column in KEY[:-1]))


def measured(runs: Path) -> dict[RowKey, Found]:
    """Return what is known of every row that was measured; ``runs`` is the folder of the user's own measurements."""
    by_seed: dict[RowKey, dict[str, float]] = {}
    for line in packaged("stored.csv"):
        by_seed.setdefault(key_of(line["table"], line), {})[line["seed"]] = float(line["value"])
    for path in sorted(runs.glob("*/measurements.csv")):
        if path.parent.name in TITLES:
            for line in Table(path, KEY, VALUES).rows():
                by_seed.setdefault(key_of(path.parent.name, line), {})[line["seed"]] = float(line["value"])
    found = {key: _of_runs(tuple(values.values())) for key, values in by_seed.items()}
    for line in packaged("recorded.csv"):
        key, count = key_of(line["table"], line), int(line["runs"])
        if key not in found or found[key].runs < count:
            mean = float(line["mean"])
            spread = float(line["spread"]) if line["spread"] else None
            found[key] = Found(mean, count, spread, line["page"], mean, mean)
    return found


def _of_runs(values: Sequence[float]) -> Found:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Found(statistics.fmean(values), len(values), spread, "", min(values), max(values))
