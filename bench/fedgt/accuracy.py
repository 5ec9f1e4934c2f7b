"""``python -m bench.fedgt.accuracy``: the tables of ``docs/fedgt-accuracy.md``, FedGT's Tables 1 and 2 beside ours.

Every method has a line as printed and one for every reading that was run; a first table counts, per method and reading,
the settings that are met. Written between marks of the page, from the runs that ship; ``python -m
bench.keep_reproduced`` does it too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.pages import write_between
from fglaudit.reproduce.published import (
    AT_THEIR_RATE,
    BY_THEIR_CODE,
    FEW_HIDDEN,
    PARTED_CLUSTERS,
    Published,
    all_published,
)
from fglaudit.reproduce.status.found import Found, RowKey, key_of, measured
from fglaudit.reproduce.status.judged import POINTS, among_enough, off

PAGE = Path(__file__).parents[2] / "docs" / "fedgt-accuracy.md"
MARKS = ("<!-- tables: python -m bench.fedgt.accuracy -->\n", "<!-- end of tables -->\n")
GLANCE = ("<!-- at a glance: python -m bench.fedgt.accuracy -->\n", "<!-- end of at a glance -->\n")
DATA_SETS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "photo": "Photo", "computers": "Computers"}
METHODS = ("FedGT", "Local", "FedAvg", "FedPer", "FED-PUB", "GCFL+", "FedSage+", "Gophormer", "GraphGPS")
SETTINGS = tuple(("non-overlapping", k) for k in ("5", "10", "20")) + tuple(
    ("overlapping", k) for k in ("10", "30", "50")
)
NOTHING = Path("no runs of one's own")
READINGS = {
    "text": "",
    "code": BY_THEIR_CODE,
    "rate": AT_THEIR_RATE,
    "parted": PARTED_CLUSTERS,
    "parted, code": PARTED_CLUSTERS + BY_THEIR_CODE,
    "few hidden": FEW_HIDDEN,
}


def tables() -> str:
    """Return a table per data set."""
    found, rows = measured(NOTHING), _printed()
    lines = []
    for dataset, name in DATA_SETS.items():
        lines += [f"| {name} | | 5 clients | 10 | 20 | overlapping 10 | 30 | 50 |", "|" + "---|" * 8]
        for method in METHODS:
            lines += _of_method([rows[dataset, method, *each] for each in SETTINGS], found)
        lines.append("")
    return "\n".join(lines)


def glance() -> str:
    """Return one table: per method and reading, how many of the settings that were run are met."""
    found, rows = measured(NOTHING), _printed()
    lines = [f"| method | {' | '.join(READINGS)} | mean gap, text |", "|" + "---|" * (len(READINGS) + 2)]
    for method in METHODS:
        mine = [rows[dataset, method, *each] for dataset in DATA_SETS for each in SETTINGS]
        gaps = {reading: _gaps(mine, end, found) for reading, end in READINGS.items()}
        met = {reading: sum(abs(gap) <= POINTS for gap in each) for reading, each in gaps.items()}
        counts = [f"{met[reading]} of {len(each)}" if each else "" for reading, each in gaps.items()]
        mean = round(sum(gaps["text"]) / len(gaps["text"]), 1) + 0.0  # no "-0.0"
        lines.append(f"| {method} | {' | '.join(counts)} | {mean:+.1f} |")
    return "\n".join([*lines, ""])


def update() -> None:
    """Write them into ``PAGE``."""
    write_between(PAGE, GLANCE, glance())
    write_between(PAGE, MARKS, tables())


def _printed() -> dict[tuple[str, str, str, str], Published]:
    """Return the rows of both tables by data set, method, setting and clients."""
    return {
        (row.dataset, row.method, row.setting, row.clients): row
        for row in all_published()
        if row.table in ("fedgt-table1", "fedgt-table2")
    }


def _gaps(rows: Sequence[Published], end: str, found: Mapping[RowKey, Found]) -> list[float]:
    """Return ours minus the printed figure, in points, of the rows that were run; ``end`` names the reading."""
    gaps = []
    for row in rows:
        ours = found.get(key_of(row.table, row.key | {"method": row.method + end}))
        if ours is not None and row.mean is not None:
            gaps.append(ours.mean - row.mean)
    return gaps


def _of_method(rows: Sequence[Published], found: Mapping[RowKey, Found]) -> Iterator[str]:
    """Yield the lines of one method; none if it was not run."""
    lines = {}
    for reading, end in READINGS.items():
        cells = [_cell(row, found.get(key_of(row.table, row.key | {"method": row.method + end}))) for row in rows]
        if any(cells):
            lines[reading] = cells
    if lines:
        lines = {"printed": [f"{row.mean:.1f}" for row in rows]} | lines
    for place, (reading, cells) in enumerate(lines.items()):
        yield f"| {'' if place else rows[0].method} | {reading} | {' | '.join(cells)} |"


def _cell(row: Published, found: Found | None) -> str:
    if found is None:
        return ""
    assert row.mean is not None
    spread = "" if found.spread is None else f" ± {found.spread:.1f}"
    runs = f" ({found.runs})" if found.runs > 1 else ""
    text = f"{found.mean:.1f}{spread}{runs}"
    if off(row, found.mean) <= POINTS:
        return f"**{text}**"
    return f"{text} *" if among_enough(found, row.mean) else text


def main() -> None:
    """Parse the command line and run."""
    argparse.ArgumentParser(prog="python -m bench.fedgt.accuracy", description=__doc__).parse_args()
    update()
    print(PAGE)


if __name__ == "__main__":
    main()
