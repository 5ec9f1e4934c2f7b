"""``--log FILE``: what a run does, a line each with the time (UTC), appended and written out at once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from fglaudit.errors import FglauditError, printable
from fglaudit.execution.display import cell_label, counts
from fglaudit.execution.engines.engine import Listener
from fglaudit.execution.engines.worker import Task
from fglaudit.files.own import reason
from fglaudit.files.user import user_path
from fglaudit.finding import CellRecord, Finding, Status


class LogFile(Listener):
    """Appends to a file; a second run's lines follow those of the first."""

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            FglauditError: it cannot be written.
        """
        self.path = user_path(path, "a log file")
        self._append("")

    def say(self, text: str) -> None:
        """Write one line.

        Raises:
            FglauditError: that is not possible.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._append(f"{now} {printable(text)}\n")

    def _append(self, text: str) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            raise FglauditError(
                f"a log file must be writable; {self.path}: {reason(error)}; use another --log"
            ) from error

    def started(self, task: Task) -> None:
        self.say(f"{task.cell.hash()} begins: {cell_label(task.cell)}")

    def finished(self, task: Task, record: CellRecord) -> None:
        self.say(f"{record.cell} done: {counts(record)}")
        for row in record.findings:
            if row.status in (Status.FAILED, Status.BROKEN_ATTACK):
                self.say(f"{record.cell} {row_line(row)}")


def check_log(path: Path) -> None:
    """Raise :class:`FglauditError` where no log can be appended to ``path``; nothing is written there."""
    new = not os.path.lexists(user_path(path, "a log file"))
    log = LogFile(path)
    if new:
        log.path.unlink(missing_ok=True)


def row_line(row: Finding) -> str:
    """Return one finding in a line: who, with what, what came of it."""
    who = f"{row.observer} ({row.observer_knowledge})" if row.observer_knowledge else row.observer
    if row.value is None or row.control is None:
        return f"{who} {row.attack}: {row.status}{f': {row.reason}' if row.reason else ''}"
    return f"{who} {row.attack}: {row.status}, {row.metric} {row.value:.3f}, a guess {row.control:.3f}"
