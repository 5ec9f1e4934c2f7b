"""``python -m bench.fedgt_accuracy``: the tables of ``docs/fedgt-accuracy.md``, FedGT's Tables 1 and 2 beside ours.

Every method has a line as printed and one for every reading that was run. Written between two marks of the page, from
the runs that ship; ``python -m bench.keep_reproduced`` does it too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.pages import write_between
from fglaudit.reproduce.found import Found, RowKey, key_of, measured
from fglaudit.reproduce.published import AT_THEIR_RATE, BY_THEIR_CODE, PARTED_CLUSTERS, Published, all_published
from fglaudit.reproduce.status import POINTS, among_enough, off

PAGE = Path(__file__).parents[1] / "docs" / "fedgt-accuracy.md"
MARKS = ("<!-- tables: python -m bench.fedgt_accuracy -->\n", "<!-- end of tables -->\n")
DATA_SETS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "photo": "Photo", "computers": "Computers"}
METHODS = ("FedGT", "Local", "FedAvg", "FedPer", "FED-PUB", "GCFL+", "FedSage+", "Gophormer", "GraphGPS")
SETTINGS = tuple(("non-overlapping", k) for k in ("5", "10", "20")) + tuple(
    ("overlapping", k) for k in ("10", "30", "50")
)
READINGS = {
    "text": "",
    "code": BY_THEIR_CODE,
    "rate": AT_THEIR_RATE,
    "parted": PARTED_CLUSTERS,
    "parted, code": PARTED_CLUSTERS + BY_THEIR_CODE,
}


def tables() -> str:
    """Return a table per data set."""
    found = measured(Path("no runs of one's own"))
    printed = {
        (row.dataset, row.method, row.setting, row.clients): row
        for row in all_published()
        if row.table in ("fedgt-table1", "fedgt-table2")
    }
    lines = []
    for dataset, name in DATA_SETS.items():
        lines += [f"| {name} | | 5 clients | 10 | 20 | overlapping 10 | 30 | 50 |", "|" + "---|" * 8]
        for method in METHODS:
            lines += _of_method([printed[dataset, method, *each] for each in SETTINGS], found)
        lines.append("")
    return "\n".join(lines)


def update() -> None:
    """Write them into ``PAGE``."""
    write_between(PAGE, MARKS, tables())


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
    text = f"{found.mean:.1f}{spread} ({found.runs})"
    if off(row, found.mean) <= POINTS:
        return f"**{text}**"
    return f"{text} *" if among_enough(found, row.mean) else text


def main() -> None:
    """Parse the command line and run."""
    argparse.ArgumentParser(prog="python -m bench.fedgt_accuracy", description=__doc__).parse_args()
    update()
    print(PAGE)


if __name__ == "__main__":
    main()
