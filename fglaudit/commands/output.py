"""What commands print beside their own lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fglaudit.errors import printable
from fglaudit.execution.exit_code import Trouble, combined

if TYPE_CHECKING:
    from rich.console import Console


def end(troubles: Sequence[Trouble]) -> None:
    """Say on stderr what went wrong, and end with the gravest exit code, if there is one."""
    for trouble in troubles:
        print(f"error: {trouble.text}", file=sys.stderr)
    if code := combined(trouble.code for trouble in troubles):
        raise SystemExit(int(code))


def results(folder: Path) -> str:
    """Return the line that says where a run's report is."""
    return printable(f"report: {folder / 'report.html'}   findings: {folder / 'findings.csv'}")


def console() -> Console:
    """Return what tables are printed with."""
    from rich.console import Console

    made = Console()
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made = Console(width=200)  # a file or pipe has no width of its own; 80 would truncate the tables
    return made
