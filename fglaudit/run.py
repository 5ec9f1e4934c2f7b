"""One run of a suite into a folder: what is finished is kept, the rest is computed, every outcome is stored at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError, counted
from fglaudit.execution.display import progress_on, say
from fglaudit.execution.engines.engine import Engine, Listener, Running, failed
from fglaudit.execution.engines.worker import Progress, Task
from fglaudit.execution.folder.csv_files import GrowingFindings, write_findings
from fglaudit.execution.folder.kept import secret_key
from fglaudit.execution.folder.run_folder import check_ours, run_folder
from fglaudit.execution.folder.shards import Claims, Shard
from fglaudit.execution.folder.store import RunStore, open_run
from fglaudit.execution.folder.stored_run import no_cycles_sought, read_manifest
from fglaudit.execution.log_file import LogFile, row_line
from fglaudit.execution.message_budget import LargeMessages
from fglaudit.execution.preflight import check_data
from fglaudit.execution.run_cell import run_cell
from fglaudit.finding import CellRecord
from fglaudit.reports import write_report
from fglaudit.reports.numbers import plural
from fglaudit.reports.records import Run, load_run
from fglaudit.suite.suite import Suite


@dataclass
class _Recorder(Listener):
    """Stores a cell the moment it is finished, then updates the display."""

    store: RunStore
    display: Listener
    log: LogFile | None = None
    verbose: Callable[[str], None] | None = None
    claims: Claims | None = None
    table: GrowingFindings | None = None  # a run in shards has none: its processes share no table

    def wanted(self, task: Task) -> bool:
        cell = task.cell.hash()
        if self.claims is None:
            return True
        if not self.claims.take(cell):
            return False
        if cell in self.store.finished([cell]):  # by a process with another number of shards
            self.claims.release(cell)
            return False
        return True

    def started(self, task: Task) -> None:
        self.display.started(task)
        if self.log is not None:
            self.log.started(task)

    def progressed(self, task: Task, progress: Progress) -> None:
        self.display.progressed(task, progress)

    def checked(self, running: Sequence[Running]) -> None:
        self.display.checked(running)
        if self.table is not None:
            self.table.write()

    def finished(self, task: Task, record: CellRecord) -> None:
        record = self.store.write(record)
        if self.table is not None:
            self.table.add(record)
        task.cell.dataset.check_pin()  # on another content the rest of the run would fail cell by cell
        self.display.finished(task, record)
        if self.log is not None:
            self.log.finished(task, record)
        if self.verbose is not None:
            for row in record.findings:
                self.verbose(f"    {row_line(row)}")
        if self.claims is not None:
            self.claims.release(record.cell)


def run_suite(
    suite: Suite,
    directory: Path,
    engine: Engine,
    device: str,
    console: Console,
    *,
    secret: bool = False,
    log: Path | None = None,
    verbose: bool = False,
    shard: Shard | None = None,
) -> list[CellRecord]:
    """Run or continue ``suite`` in ``directory``, write findings and reports, and return all records in suite order.

    ``findings.csv`` grows with every finished cell, but for shards. Findings and reports are written even when the run
    is interrupted: they then say which cells are missing.

    Args:
        device: of the cells, ``cpu`` or ``cuda``.
        secret: whether training and noise are drawn with a key of the run's own.
        log: a file that is told what happens, with the time.
        verbose: print every finding as its cell is finished.
        shard: the part of the cells to compute and return; other processes compute the others in the same folder.

    Raises:
        FglauditError: the folder is in use, holds another suite, or cannot be written.
    """
    told = None if log is None else LogFile(log)
    if told is not None:
        told.say("log of fglaudit begins")
    check_ours(run_folder(directory))  # before minutes are spent on loading data
    cells = [replace(cell, secret=secret) for cell in suite.cells()]
    data = check_data(suite, LargeMessages.of(suite))
    with open_run(directory, suite, cells, data.digests, engine.threads, shard) as store:
        engine.threads = store.made.threads
        finished = store.finished()
        large = [] if len(finished) == len(store.mine) else data.answers
        notes = [*data.notes, *store.notes, *suite.default_notes(), *large]
        _say_begin(console, told, notes, len(finished), store, directory)
        key = _key(store, directory, shard, started=bool(finished)) if secret else b""
        tasks = [_task(store, name, suite.name, directory, device, key) for name in store.mine if name not in finished]
        claims = None if shard is None else Claims(directory)
        display = progress_on(console, len(store.mine), len(finished), [task.cell for task in tasks])
        try:
            said = partial(say, console) if verbose else None
            table = GrowingFindings(directory, finished.values()) if shard is None else None
            recorder = _Recorder(store, display, log=told, verbose=said, claims=claims, table=table)
            with display:
                engine.run(_fitting(tasks, data.too_large, recorder), run_cell, recorder)
        finally:
            store.remove_spool()  # first: what follows takes long, and a second signal may be the last one
            if claims is not None:
                claims.release_all()
            with store.locked():
                outputs = write_outputs(directory)
        mine = set(store.mine)
        return [record for record in outputs.cells if record.cell in mine]


def _say_begin(
    console: Console, log: LogFile | None, notes: Sequence[str], finished: int, store: RunStore, directory: Path
) -> None:
    """Print, and log, ``notes``, and print how many cells are finished already."""
    for note in notes:
        say(console, f"note: {note}")
        if log is not None:
            log.say(f"note: {note}")
    if finished:
        done = f"{finished} of {counted(len(store.mine), 'cell')} {'is' if finished == 1 else 'are'}"
        say(console, f"{done} finished already in {directory}")


def _key(store: RunStore, directory: Path, shard: Shard | None, *, started: bool) -> bytes:
    """Return the run's secret key; a run that was ``started``, by this shard or another one, has one."""
    with store.locked():
        return secret_key(directory, started=started if shard is None else any((directory / "cells").glob("*.json")))


def _task(store: RunStore, name: str, suite: str, directory: Path, device: str, key: bytes) -> Task:
    """Return the task of the cell ``name``, with the places of its files in the run's folder."""
    return Task(
        store.cells[name],
        suite,
        device,
        recording=store.recording_path(name),
        truth=store.truth_path(name),
        spool=store.spool / name,
        errors=directory / ERRORS / f"{name}.txt",
        key=key,
    )


def _fitting(tasks: Sequence[Task], too_large: Mapping[DatasetSpec, str], recorder: _Recorder) -> list[Task]:
    """Return the tasks whose data fit into memory; the others fail with the reason."""
    for task in tasks:
        if (why := too_large.get(task.cell.dataset)) is not None:
            recorder.started(task)
            recorder.finished(task, failed(task, why))
    return [task for task in tasks if task.cell.dataset not in too_large]


def write_outputs(directory: Path) -> Run:
    """Write the tables and the reports of a run from its records, which are returned.

    Raises:
        FglauditError: ``directory`` holds no run, or none of its records can be read: tables made of
            them by another version are not written over with nothing.
    """
    planned = read_manifest(directory).plan
    with no_cycles_sought():
        run = load_run(directory)
        if planned and sum(bad.file.startswith("cells/") for bad in run.unreadable) == len(planned):
            raise FglauditError(
                f"a report is made from records that can be read; of {plural(len(planned), 'cell')} in {directory} none"
                f" can be: {run.unreadable[0].reason}; the tables and the report in the folder stay as they were"
            )
        write_findings(directory, run.cells)
        write_report(directory, run)
    return run


ERRORS = "errors"
"""Folder of a run with the tracebacks of its failed cells, one file each."""
OUTPUTS = (
    "findings.csv",
    "coverage.csv",
    "guarantees.csv",
    "summary.csv",
    "report.html",
    "report.md",
    "findings.json",
    "summary.tex",
)
