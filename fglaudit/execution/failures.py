"""What a run says of cells that failed: each reason once, however many cells it is that of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from fglaudit.finding import CellRecord, Finding, Status

NAMED = 3
"""Failed cells with one reason that are named; the others are counted."""


class Causes:
    """Why cells failed, each reason told once: one that fails them all is a line, not a line per cell."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def new(self, record: CellRecord) -> str:
        """Return why ``record`` failed unless that was told of another cell already; empty where it did not."""
        reason = next((row.reason for row in record.findings if row.status is Status.FAILED), "")
        if reason in self._told:
            return ""
        self._told.add(reason)
        return reason


def _call(name: str, args: str) -> str:
    return f"{name} {args.replace(';', ' ')}" if args else name


def failures_table(rows: Sequence[Finding]) -> Table:
    """Return why cells failed: each reason once, with how many cells and rows it is that of, and the first of them."""
    table = Table(title="Failed", title_justify="left", title_style="red")
    for column in ("cells", "what", "rows", "reason"):
        table.add_column(column, overflow="fold")
    by_reason: dict[str, dict[str, str]] = defaultdict(dict)
    counted: dict[str, int] = defaultdict(int)
    for row in rows:
        by_reason[row.reason][row.cell] = (
            f"{row.cell} {_call(row.dataset, row.dataset_args)}, {_call(row.protocol, row.protocol_args)},"
            f" {_call(row.defense, row.defense_args)}, seed {row.seed}"
        )
        counted[row.reason] += 1
    for reason, cells in by_reason.items():
        named = list(cells.values())[:NAMED]
        more = [f"and {len(cells) - len(named)} more"] if len(cells) > len(named) else []
        what = "\n".join([*named, *more])
        table.add_row(str(len(cells)), escape(what), str(counted[reason]), escape(reason))
    return table
