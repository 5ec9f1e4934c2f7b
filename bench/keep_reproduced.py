"""``python -m bench.keep_reproduced [FOLDER]``: keeps runs of ``fglaudit reproduce`` in the package.

The lines of ``FOLDER/*/measurements.csv`` (``runs/reproduce`` without a folder) are added to ``stored.csv``, in place
of those of the same row and seed; the counts between the two marks of ``docs/reproduce.md`` and the tables of
``docs/fedgt-accuracy.md`` are written anew.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from bench.fedgt import accuracy as fedgt_accuracy
from bench.pages import write_between
from fglaudit.files.own import write_atomic
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.published import TITLES
from fglaudit.reproduce.run import KEY, VALUES
from fglaudit.reproduce.status.judged import judged
from fglaudit.reproduce.status.text import summary

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "fglaudit" / "reproduce" / "stored.csv"
PAGE = REPOSITORY / "docs" / "reproduce.md"
MARKS = ("<!-- counts: python -m bench.keep_reproduced -->\n", "<!-- end of counts -->\n")
COLUMNS = ("table", *KEY, *VALUES)


def keep(folder: Path) -> int:
    """Add the runs in ``folder`` to ``STORED``; return how many lines that has then."""
    with STORED.open(newline="") as file:
        lines = list(csv.DictReader(file))
    for path in sorted(folder.glob("*/measurements.csv")):
        if path.parent.name in TITLES:
            lines += [{"table": path.parent.name, **line} for line in Table(path, KEY, VALUES).rows()]
    latest = {tuple(line[column] for column in ("table", *KEY)): line for line in lines}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    order = {table: place for place, table in enumerate(TITLES)}
    writer.writerows(latest[key] for key in sorted(latest, key=lambda key: (order[key[0]], key[1:-1], int(key[-1]))))
    write_atomic(STORED, text.getvalue())
    return len(latest)


def update_pages() -> None:
    """Write the counts of what ships into ``PAGE``, and FedGT's tables."""
    write_between(PAGE, MARKS, summary(judged(REPOSITORY / "no runs of one's own")))
    fedgt_accuracy.update()


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.keep_reproduced", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/reproduce"))
    folder = parser.parse_args().folder
    if not any(folder.glob("*/measurements.csv")):
        parser.error(f"no TABLE/measurements.csv in {folder}; run `fglaudit reproduce TABLE`, or name another folder")
    print(keep(folder), "runs are kept")
    update_pages()


if __name__ == "__main__":
    main()
