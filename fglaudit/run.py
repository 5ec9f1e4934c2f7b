"""One run of a suite into a folder: what is finished is kept, the rest is computed, every outcome is stored at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fglaudit.errors import printable
from fglaudit.execution.display import LiveProgress, PlainProgress
from fglaudit.execution.engine import Engine, Listener, Running, failed
from fglaudit.execution.kept import secret_key
from fglaudit.execution.preflight import check_data
from fglaudit.execution.run_cell import run_cell
from fglaudit.execution.run_folder import check_ours, run_folder
from fglaudit.execution.store import RunStore, open_run, read_manifest, write_findings
from fglaudit.execution.worker import Progress, Runner, Task
from fglaudit.finding import CellRecord
from fglaudit.reports import write_report
from fglaudit.reports.records import Run, load_run
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

    def checked(self, running: Sequence[Running]) -> None:
        self.display.checked(running)

    def finished(self, task: Task, record: CellRecord) -> None:
        record = self.store.write(record)
        task.cell.dataset.check_pin()  # on another content the rest of the run would fail cell by cell
        self.display.finished(task, record)


def run_suite(
    suite: Suite,
    directory: Path,
    engine: Engine,
    device: str,
    console: Console,
    runner: Runner = run_cell,
    *,
    secret: bool = False,
) -> list[CellRecord]:
    """Run or continue ``suite`` in ``directory``, write findings and reports, and return all records in suite order.

    Findings and reports are written even when the run is interrupted: they then say which cells are missing.

    Args:
        device: of the cells, ``cpu`` or ``cuda``.
        runner: what computes a cell; tests put their own here.
        secret: whether training and noise are drawn with a key of the run's own.

    Raises:
        FglauditError: the folder is in use, holds another suite, or cannot be written.
    """
    check_ours(run_folder(directory))  # before minutes are spent on loading data
    cells = [replace(cell, secret=secret) for cell in suite.cells()]
    data = check_data(suite)
    with open_run(directory, suite, cells, data.digests, engine.threads) as store:
        engine.threads = store.made.threads
        finished = store.finished()
        for note in [*data.notes, *store.notes]:
            _say(console, f"note: {note}")
        if finished:
            _say(console, f"{len(finished)} of {len(cells)} cells are finished already in {directory}")
        key = secret_key(directory, started=bool(finished)) if secret else b""
        tasks = [
            Task(
                cell,
                suite.name,
                device,
                recording=store.recording_path(name),
                truth=store.truth_path(name),
                spool=store.spool / name,
                key=key,
            )
            for name, cell in store.cells.items()
            if name not in finished
        ]
        display = _display(console, len(store.cells), len(finished))
        try:
            recorder = _Recorder(store, display)
            with display:
                for task in tasks:
                    if (why := data.too_large.get(task.cell.dataset)) is not None:
                        recorder.started(task)
                        recorder.finished(task, failed(task, why))
                fitting = [task for task in tasks if task.cell.dataset not in data.too_large]
                engine.run(fitting, runner, recorder)
        finally:
            store.remove_spool()  # first: what follows takes long, and a second signal may be the last one
            outputs = write_outputs(directory)
        return list(outputs.cells)


def _say(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _display(console: Console, total: int, done: int) -> Any:
    chosen = LiveProgress if console.is_terminal else PlainProgress
    return chosen(console, total, done)


def write_outputs(directory: Path) -> Run:
    """Write ``findings.csv``, ``coverage.csv`` and the reports of a run from its records, which are returned."""
    read_manifest(directory)
    run = load_run(directory)
    write_findings(directory, run.cells)
    write_report(directory, run)
    return run


OUTPUTS = ("findings.csv", "coverage.csv", "summary.csv", "report.html", "report.md")
