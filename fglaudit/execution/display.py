"""What a run prints while it runs, or before: plain lines if there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from fglaudit.errors import FglauditError, counted, printable
from fglaudit.execution.engines.engine import Listener, Running
from fglaudit.execution.engines.worker import Progress as Rounds
from fglaudit.execution.engines.worker import Task, phase
from fglaudit.execution.failures import Causes
from fglaudit.execution.folder.stored_run import read_record
from fglaudit.execution.time_left import TimeLeft
from fglaudit.finding import CellRecord, Status
from fglaudit.suite.cell import Cell, arguments, dataset_arguments, dataset_name
from fglaudit.suite.suite import Suite


def say(console: Console, text: str) -> None:
    """Print a line as it is: no markup, no colours, not broken."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def cell_label(cell: Cell) -> str:
    """Return the cell in a few words: ``cora dirichlet(...) fedgcn(hops=1) none seed 0``."""
    dataset, protocol, defense = (
        f"{name}({args})" if args else name
        for name, args in (
            (dataset_name(cell.dataset), dataset_arguments(cell.dataset)),
            (cell.protocol.name, arguments(cell.protocol)),
            (cell.defense.name, arguments(cell.defense)),
        )
    )
    active = "" if cell.behaviour is None else f" rules broken by {cell.server}"
    return f"{dataset} {arguments(cell.partition)} {protocol}{active} {defense} seed {cell.seed}"


def counts(record: CellRecord) -> str:
    """Return e.g. ``accuracy 0.812, 12 ok, 3 not-applicable``."""
    by_status = [(s, sum(row.status is s for row in record.findings)) for s in Status]
    words = [f"{count} {status}" for status, count in by_status if count]
    accuracy = next((row.accuracy for row in record.findings if row.accuracy is not None), None)
    return ", ".join(([f"accuracy {accuracy:.3f}"] if accuracy is not None else []) + words)


class PlainProgress(Listener):
    """One line per finished cell, for logs."""

    def __init__(self, console: Console, total: int, done: int, to_do: Sequence[Cell]) -> None:
        self.console, self.total, self.done = console, total, done
        self.left = TimeLeft(to_do)
        self.causes = Causes()
        self.said = time.monotonic()

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def started(self, task: Task) -> None:
        self.left.started(task.cell.hash())

    def finished(self, task: Task, record: CellRecord) -> None:
        self.done += 1
        self.said = time.monotonic()
        took = f"{self.left.finished(record.cell):.1f} s"
        times = ", ".join(filter(None, (took, self.left.words())))
        say(self.console, f"[{self.done}/{self.total}] {cell_label(task.cell)}: {counts(record)} ({times})")
        if reason := self.causes.new(record):
            say(self.console, f"    failed: {reason}")

    def checked(self, running: Sequence[Running]) -> None:
        if time.monotonic() - self.said < QUIET_SECONDS:
            return
        self.said = time.monotonic()
        for cell in running:
            text = f"    running: {cell_label(cell.task.cell)}: {heartbeat(cell)}"
            say(self.console, text)


def progress_on(console: Console, total: int, done: int, to_do: Sequence[Cell]) -> PlainProgress | LiveProgress:
    """Return bars where lines can be redrawn: not on a dumb terminal, nor in a log that asks for colours
    (FORCE_COLOR)."""
    redrawn = console.is_interactive and console.file.isatty()
    return (LiveProgress if redrawn else PlainProgress)(console, total, done, to_do)


def heartbeat(running: Running) -> str:
    """Return what a cell is doing, and for how long nothing has been heard of it if that is long."""
    text = f"{phase(running.progress)}, {running.seconds:.0f} s since it began"
    if running.silent is not None and running.silent > SILENT_SECONDS:
        return f"{text}, no sign of life for {running.silent:.0f} s"
    return text


QUIET_SECONDS, SILENT_SECONDS = 60.0, 30.0
"""A log without a line for so long gets one about the running cells; a process that is silent for so long hangs."""


class LiveProgress(Listener):
    """A bar for the cells and one for the rounds of each cell that is being computed."""

    def __init__(self, console: Console, total: int, done: int, to_do: Sequence[Cell]) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.cells = self.bars.add_task("all", total=total, completed=done, unit="cells", left="")
        self.left = TimeLeft(to_do)
        self.running: dict[str, TaskID] = {}
        self.causes = Causes()

    def __enter__(self) -> LiveProgress:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def started(self, task: Task) -> None:
        rounds, label = task.cell.protocol.num_rounds, escape(cell_label(task.cell))
        self.left.started(task.cell.hash())
        self.running[task.cell.hash()] = self.bars.add_task(label, total=rounds, unit="rounds", left="")

    def progressed(self, task: Task, progress: Rounds) -> None:
        bar = self.running[task.cell.hash()]
        unit = "rounds" if progress.round < progress.rounds else f"rounds, {progress.doing or 'attacking'}"
        self.bars.update(bar, completed=progress.round, total=progress.rounds, unit=unit)

    def checked(self, running: Sequence[Running]) -> None:
        self.bars.update(self.cells, left=self.left.words())
        for cell in running:
            bar = self.running.get(cell.task.cell.hash())
            if bar is not None and (cell.silent or 0.0) > SILENT_SECONDS:
                self.bars.update(bar, unit=f"rounds, no sign of life for {cell.silent:.0f} s")

    def finished(self, task: Task, record: CellRecord) -> None:
        self.bars.remove_task(self.running.pop(task.cell.hash()))
        self.left.finished(record.cell)
        self.bars.update(self.cells, advance=1, left=self.left.words())
        if reason := self.causes.new(record):
            self.bars.console.print(
                f"[red]failed[/red] {escape(cell_label(task.cell))}: {escape(reason)}", highlight=False
            )


def _state(path: Path) -> str:
    """Return whether a run computes the cell with the record at ``path``: also where it failed, or is damaged."""
    try:
        record = read_record(path) if path.exists() else None
    except FglauditError:
        record = None
    if record is None:
        return "to do"
    return "failed" if any(row.status is Status.FAILED for row in record.findings) else "finished"


def print_plan(
    console: Console,
    suite: Suite,
    directory: Path,
    *,
    secret: bool = False,
    unserved: Collection[int] = (),
) -> None:
    """Say what a run would compute. Nothing is written.

    Args:
        unserved: places in ``suite.cells()`` of the cells that are known to be not applicable.
    """
    cells = [replace(cell, secret=secret) for cell in suite.cells()]
    names = [cell.hash() for cell in cells]
    states = [_state(directory / "cells" / f"{name}.json") for name in names]
    finished = states.count("finished")
    states = [Status.NOT_APPLICABLE.value if i in unserved else state for i, state in enumerate(states)]
    wide = max(8, *map(len, states))
    rows = sum(len(cell.observers) * len(cell.attacks) for cell in cells)
    of_suite = counted(len(suite.attacks), "attack")
    attacks = "the attacks that read what each protocol sends" if suite.all_attacks else of_suite
    reading = [cell for cell in cells if not suite.all_attacks or type(cell.protocol).emits]
    observers = ", ".join(f"{o.name} ({o.knowledge})" if o.knowledge else o.name for o in suite.observers)
    lines = [
        f"suite {suite.name}: {counted(len(cells), 'cell')} x {counted(len(suite.observers), 'observer')} x {attacks} ="
        f" {counted(rows, 'row')}",
        f"observers: {observers}",
        f"attacks: {', '.join(dict.fromkeys(attack.name for cell in reading for attack in cell.attacks))}",
        f"output: {directory}" + (f" ({counted(finished, 'cell is', 'cells are')} finished there)" if finished else ""),
        *(f"{n}  {state:{wide}}  {cell_label(cell)}" for n, state, cell in zip(names, states, cells, strict=True)),
    ]
    for line in lines:
        say(console, line)
