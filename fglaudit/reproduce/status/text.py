"""The state of the papers' tables as markdown: counts by table, then every row that misses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fglaudit.errors import unknown
from fglaudit.reproduce.measuring import seeds_of
from fglaudit.reproduce.published import TITLES
from fglaudit.reproduce.status.judged import (
    AIM,
    BARRED,
    EXPLAINED,
    HIT,
    MISSED,
    OPEN,
    POINTS,
    Judged,
    judged,
    share_unexplained,
)

_COLUMNS = ("printed", "measured", "runs", "within", "missed, cause shown", "missed", "not run", "cannot be run")


def status_of(table: str, runs: Path) -> str:
    """Return the state of ``table``, row by row; of all tables, if it is "", in counts and misses.

    Args:
        runs: folder of the user's own measurements.

    Raises:
        FglauditError: there is no such table.
    """
    if table and table not in TITLES:
        raise unknown("table", table, TITLES)
    rows = judged(runs, (table,) if table else TITLES)
    if not rows:
        return f"{TITLES[table]}: the paper prints no number there\n"
    return summary(rows) + "\n" + (every_row(rows) if table else misses(rows))


def summary(rows: Sequence[Judged]) -> str:
    """Return the answer in a sentence or two, and the counts by table: accuracies first, then all other figures."""
    accuracies = [row for row in rows if row.row.metric == "accuracy"]
    others = [row for row in rows if row.row.metric != "accuracy"]
    lines = []
    if accuracies:
        lines = [_answer("accuracies", f"{POINTS:g} points", accuracies), "", *_counts(accuracies), ""]
    if others:
        lines += [_answer("other figures (counts, sizes, bytes)", f"{POINTS:g} %", others), "", *_counts(others), ""]
    return "\n".join(lines)


def misses(rows: Sequence[Judged]) -> str:
    """Return the rows that miss: those without a cause first, then the causes with their rows."""
    lines = []
    if without := [row for row in rows if row.verdict == MISSED]:
        lines += [
            "Missed, no cause shown:",
            "",
            "| table | row | printed | here | gap | runs | as published code |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in without:
            ours = f"{row.mean:.5g} | {row.gap:+.4g} | {row.runs}"
            code = "" if row.by_code is None else f"{row.by_code:.5g}"
            lines.append(f"| {row.row.table} | {row.row.label} | {row.row.mean:g} | {ours} | {code} |")
        lines += [""]
    if explained := [row for row in rows if row.verdict == EXPLAINED]:
        lines += ["Missed, cause shown by an experiment:", ""]
        for page, reason in dict.fromkeys((row.page, row.reason) for row in explained):
            same = [row for row in explained if (row.page, row.reason) == (page, reason)]
            lines += [
                f"- {reason} ({page}): " + "; ".join(f"{row.row.table}, {row.row.label} {row.gap:+.3g}" for row in same)
            ]
    return "\n".join(lines) + "\n"


def every_row(rows: Sequence[Judged]) -> str:
    """Return a line per printed figure."""
    lines = ["| row | printed | here | gap | runs | verdict | see |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        ours = ("", "") if row.mean is None else (f"{row.mean:.5g}", f"{row.gap:+.4g}")
        see = ": ".join(filter(None, (row.page, row.reason)))
        lines.append(
            f"| {row.row.label} | {row.row.mean:g} | {ours[0]} | {ours[1]} | {row.runs} | {row.verdict} | {see} |"
        )
    return "\n".join(lines) + "\n"


def _answer(what: str, bound: str, rows: Sequence[Judged]) -> str:
    def count(verdict: str) -> int:
        return sum(row.verdict == verdict for row in rows)

    ran = sum(row.mean is not None for row in rows)
    possible = len(rows) - count(BARRED)
    above = sum(row.verdict == MISSED and row.gap > 0 for row in rows)
    below, share = count(MISSED) - above, 100 * share_unexplained(rows)
    between = sum(row.verdict == MISSED and row.between for row in rows)
    apart = f"; {between} of them between ours and that of the authors' code" if between else ""
    return (
        f"**Of {len(rows)} printed {what} {possible} can be run here and {ran} were: {count(HIT)} are within {bound} of"
        f" the printed figure, {count(EXPLAINED)} miss with a page that shows the cause, {count(MISSED)} miss without"
        f" ({above} above, {below} below{apart}): {share:.1f} % of those run; the aim is {100 * AIM:g} %.**"
        f" {_behind(rows, ran)}"
    )


def _behind(rows: Sequence[Judged], ran: int) -> str:
    """Return how many runs are behind the figures that were measured: of ``rows`` these are ``ran``."""
    measured = [row for row in rows if row.mean is not None]
    planned = [len(seeds_of(row.row)) for row in measured]
    whole = sum(row.runs >= seeds for row, seeds in zip(measured, planned, strict=True))
    several = sum(seeds > 1 for seeds in planned)
    once = sum(row.runs == 1 < seeds for row, seeds in zip(measured, planned, strict=True))
    if not several:
        return "None of them depends on a seed."
    alone = f", one alone behind {once}" if once else ""
    return f"All seeds of their tables are behind {whole} of these {ran}{alone}."


def _counts(rows: Sequence[Judged]) -> list[str]:
    lines = ["| table | " + " | ".join(_COLUMNS) + " |", "|---|" + "---|" * len(_COLUMNS)]
    tables = [table for table in TITLES if any(row.row.table == table for row in rows)]
    for table in tables:
        lines.append(_line(table, [row for row in rows if row.row.table == table]))
    return lines if len(tables) < 2 else [*lines, _line("all", rows)]


def _line(name: str, rows: Sequence[Judged]) -> str:
    runs = [row.runs for row in rows if row.mean is not None]
    counted = [sum(row.verdict == verdict for row in rows) for verdict in (HIT, EXPLAINED, MISSED, OPEN, BARRED)]
    between = "" if not runs else f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
    return f"| {name} | {len(rows)} | {len(runs)} | {between} | " + " | ".join(map(str, counted)) + " |"
