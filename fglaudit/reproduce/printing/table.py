"""A reproduced table as text, markdown, CSV and a figure, all from the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fglaudit.execution.folder.csv_files import csv_text
from fglaudit.files.own import write_atomic
from fglaudit.reproduce.matrices import stored
from fglaudit.reproduce.measuring import seeds_of
from fglaudit.reproduce.printing.curves import curves
from fglaudit.reproduce.printing.dot_plot import dot_plot
from fglaudit.reproduce.printing.heat_maps import heat_maps
from fglaudit.reproduce.printing.panels import panels_of
from fglaudit.reproduce.published import TITLES
from fglaudit.reproduce.run import Compared, rounded

COLUMNS = (
    "dataset", "setting", "clients", "method", "metric", "unit", "paper", "paper_spread", "ours", "ours_spread", "runs",
    "gap", "gap_in_deviations", "cpu_seconds", "gigabytes", "reason",
)  # fmt: skip
SHOWN = ("row", "paper", "ours", "gap", "in deviations", "runs", "CPU s", "GB")


def write(table: str, rows: Sequence[Compared], folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv`` and ``table.svg`` into ``folder``, which is there; returns their paths.

    Where figures were computed from matrices of pairs of clients, ``heat_maps.svg`` is written too.
    """
    drawn = curves if "-figure" in table and panels_of(rows) else dot_plot
    texts = {"table.md": markdown(table, rows), "table.csv": as_csv(rows), "table.svg": drawn(TITLES[table], rows)}
    if maps := stored(folder, [row.row for row in rows], seeds_of(rows[0].row)):
        texts["heat_maps.svg"] = heat_maps(TITLES[table], maps)
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return [folder / name for name in texts]


def markdown(table: str, rows: Sequence[Compared]) -> str:
    """Return the table, ours beside theirs, and below it the rows that have no figure here, with the reason."""
    lines = [f"# {TITLES[table]}", "", f"`fglaudit reproduce {table}`; spreads of ours are standard deviations.", ""]
    lines += ["| " + " | ".join(SHOWN) + " |", "|" + "---|" * len(SHOWN)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows if row.values]
    if without := [row for row in rows if not row.values]:
        lines += ["", "Not measured:", ""]
        for reason in dict.fromkeys(row.reason for row in without):
            labels = [row.row.label for row in without if row.reason == reason]
            lines.append(f"- {reason}: {'; '.join(labels)}")
    return "\n".join(lines) + "\n"


def cells(row: Compared) -> tuple[str, ...]:
    """Return a row's cells under ``SHOWN``."""
    paper = "" if row.row.mean is None else f"{row.row.mean:g}"
    paper += "" if row.row.spread is None else f" ± {row.row.spread:g}"
    if row.mean is None:
        return (row.row.label, paper, row.reason, "", "", "0", "", "")
    ours = rounded(row.mean) + (f" ± {rounded(row.spread)}" if row.spread is not None else "")
    gap = "" if row.gap is None else f"{row.gap:+.2f}"
    deviations = "" if row.deviations is None else f"{row.deviations:+.1f}"
    counts = (str(len(row.values)), f"{row.seconds:.1f}", f"{row.gigabytes:.3g}")
    return (row.row.label, paper, ours, gap, deviations, *counts)


def as_csv(rows: Sequence[Compared]) -> str:
    """Return all rows as CSV, figures in full."""
    lines: list[tuple[Any, ...]] = [COLUMNS]
    for row in rows:
        paper = row.row
        theirs = (paper.dataset, paper.setting, paper.clients, paper.method, paper.metric, paper.unit, paper.mean)
        ours = (row.mean, row.spread, len(row.values), row.gap, row.deviations, row.seconds, row.gigabytes, row.reason)
        lines.append((*theirs, paper.spread, *ours))
    return csv_text(lines)
