"""One run of a suite into a folder: what is finished is kept, the rest is computed, every outcome is stored at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fglaudit.execution.display import LiveProgress, PlainProgress
from fglaudit.execution.engine import Engine, Listener
from fglaudit.execution.preflight import check_data
from fglaudit.execution.run_cell import run_cell
from fglaudit.execution.store import RunStore, open_run, read_records, write_findings
from fglaudit.execution.worker import Progress, Runner, Task
from fglaudit.finding import CellRecord
from fglaudit.reports import write_report
from fglaudit.suite.suite import Suite


@dataclass
class _Recorder(Listener):
    """Stores a cell the moment it is finished, then updates the display."""

    store: RunStore
    display: Listener

    def started(self, task: Task) -> None:
        self.display.started(task)

    def progressed(self, task: Task, progress: Progress) -> None:
        self.display.progressed(task, progress)

    def finished(self, task: Task, record: CellRecord) -> None:
        self.store.write(record)
        task.cell.dataset.check_pin()  # on another content the rest of the run would fail cell by cell
        self.display.finished(task, record)


def run_suite(
    suite: Suite, directory: Path, engine: Engine, device: str, console: Console, runner: Runner = run_cell
) -> list[CellRecord]:
    """Run or continue ``suite`` in ``directory``, write findings and reports, and return all records in suite order.

    Findings and reports are written even when the run is interrupted: they then say which cells are missing.

    Args:
        device: of the cells, ``cpu`` or ``cuda``.
        runner: what computes a cell; tests put their own here.

    Raises:
        FglauditError: the folder is in use, holds another suite, or cannot be written.
    """
    cells = suite.cells()
    data = check_data(suite)
    with open_run(directory, suite, cells, data.digests, engine.threads) as store:
        engine.threads = store.threads
        finished = store.finished()
        for note in [*data.notes, *store.notes]:
            console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
        if finished:
            console.print(f"{len(finished)} of {len(cells)} cells are finished already in {directory}", highlight=False)
        tasks = [
            Task(c, suite.name, device, store.recording_path(c.hash()), store.truth_path(c.hash()))
            for c in cells
            if c.hash() not in finished
        ]
        display = _display(console, len(cells), len(finished))
        try:
            with display:
                engine.run(tasks, runner, _Recorder(store, display))
        finally:
            write_outputs(directory)
        return read_records(directory)


def _display(console: Console, total: int, done: int) -> Any:
    chosen = LiveProgress if console.is_terminal else PlainProgress
    return chosen(console, total, done)


def write_outputs(directory: Path) -> Sequence[Path]:
    """Write ``findings.csv`` and the reports of a run from its records."""
    return [write_findings(directory), *write_report(directory)]
