"""A worker process: computes one cell at a time and reports progress.

Its parent is :mod:`fglaudit.execution.engines.engine`.

Each worker has a pipe of its own, so that when one is killed it is known which cell it was computing; a shared pool
would lose the cells of all its workers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import torch

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.doing import heard_by
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.data_child import is_memory, without_memory
from fglaudit.execution.folder.kept import remove_kept
from fglaudit.files.own import make_folder, remove_tree, write_atomic
from fglaudit.finding import CellRecord
from fglaudit.interruption import leave_to_parent
from fglaudit.suite.cell import Cell
from fglaudit.tracebacks import collected, keep, place


class Runner(Protocol):
    """Computes one cell, as :mod:`fglaudit.execution.run_cell` does. Must be picklable: worker processes import it."""

    def __call__(
        self,
        cell: Cell,
        *,
        suite: str,
        device: torch.device,
        progress: Callable[[int, int], None],
        recording_dir: Path | None,
        truth_dir: Path | None,
        spool_dir: Path | None,
        key: bytes,
    ) -> CellRecord:
        """Return the record of ``cell``; ``progress`` is called with (round, rounds)."""


@dataclass(frozen=True)
class Task:
    """One cell to compute.

    Attributes:
        recording, truth: folders for what the cell keeps of its run, apart from each other; None to keep nothing.
        spool: folder for the messages while the cell is computed; whoever ends the cell removes it.
        errors: file for the tracebacks of what fails in the cell; None to keep none.
        key: of the noise, see :func:`fglaudit.rng.derive`; empty: everybody who knows the seed knows the noise.
    """

    cell: Cell
    suite: str
    device: str
    recording: Path | None = None
    truth: Path | None = None
    spool: Path | None = None
    errors: Path | None = None
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Started:
    """Sent by a worker: it has the task, and begins."""


@dataclass(frozen=True)
class Alive:
    """Sent by a worker every few seconds, also where a single step takes hours."""


@dataclass(frozen=True)
class Progress:
    """Sent by a worker: ``round`` of ``rounds`` is done; after the last one, what it is ``doing``."""

    round: int
    rounds: int
    doing: str = ""


@dataclass(frozen=True)
class Failure:
    """Sent by a worker instead of a record: why the cell gave none."""

    reason: str


def compute(task: Task, runner: Runner, report: Callable[[Progress], None]) -> CellRecord | Failure:
    """Run one cell; whatever it raises becomes a :class:`Failure`, so that the other cells go on."""
    last: list[Progress] = []

    def heard(done: int, total: int, doing: str = "") -> None:
        last[:] = [Progress(done, total, doing)]
        report(last[0])

    def told(doing: str) -> None:
        if last:
            heard(last[0].round, last[0].rounds, doing)

    with collected() as tracebacks, heard_by(told):
        try:
            return _computed(task, runner, heard)
        except Exception as error:
            doing = phase(last[0] if last else None)
            keep(error, doing)
            return Failure(explain(error, doing, task.cell.dataset))
        finally:
            if task.spool is not None:
                remove_tree(task.spool)
            _write_errors(task, tracebacks)


def _computed(task: Task, runner: Runner, heard: Callable[[int, int], None]) -> CellRecord:
    for folder in (task.recording, task.truth):
        if folder is not None:
            remove_kept(folder)  # of an attempt that was killed
    return runner(
        task.cell,
        suite=task.suite,
        device=torch.device(task.device),
        progress=heard,
        recording_dir=task.recording,
        truth_dir=task.truth,
        spool_dir=task.spool,
        key=task.key,
    )


def _write_errors(task: Task, tracebacks: Sequence[str]) -> None:
    """Keep the tracebacks of a cell in the folder of its run, in place of those of an earlier attempt."""
    if task.errors is None:
        return
    with contextlib.suppress(FglauditError, OSError):  # a full disk must not cost the cell
        if tracebacks:
            make_folder(task.errors.parent)
            write_atomic(task.errors, "\n".join(tracebacks), linked=False)
        else:
            task.errors.unlink(missing_ok=True)


def phase(progress: Progress | None) -> str:
    """Return what a cell does after it reported ``progress``, in words."""
    if progress is None:
        return "loading data and preparing the training"
    if progress.round < progress.rounds:
        return f"training (round {progress.round} of {progress.rounds})"
    return progress.doing or "attacking and scoring"


def explain(error: BaseException, doing: str = "", dataset: DatasetSpec | None = None) -> str:
    """Return one line for the ``reason`` column; ``doing`` is the phase in which a cell on ``dataset`` ran out of
    memory."""
    text = " ".join(str(error).split())
    if isinstance(error, FglauditError):
        return text
    name = type(error).__name__
    if is_memory(error):
        cause = f"{name}: {text or 'no details'}"
        if dataset is not None:
            return without_memory(dataset, f"while {doing}", cause)
        return f"out of memory ({cause}); use fewer --jobs, fewer observers or a smaller data set"
    return (f"{name}: {text}" if text else name) + place(error)


def serve(connection: Connection, runner: Runner, threads: int, plugin_files: Mapping[str, str]) -> None:
    """Body of a worker process: compute the tasks that arrive until the parent closes the pipe."""
    leave_to_parent()  # Ctrl-C is the parent's to handle: it ends its workers
    at_work: list[Task] = []
    threading.Thread(target=_die_with_parent, args=(at_work,), daemon=True).start()
    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    sender = _Sender(connection)
    sender.send(None)  # ready: tasks may name classes of the plugin files
    threading.Thread(target=_beat, args=(sender, at_work), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            message = connection.recv_bytes()
            task = read_task(message)
            sender.send(Started())
            if isinstance(task, Failure):
                sender.send(task)
                continue
            at_work.append(task)
            outcome = compute(task, runner, _Throttled(sender))
            at_work.clear()
            sender.send(outcome)


def read_task(message: bytes) -> Task | Failure:
    """Return the task that was sent, or why it cannot be read: reading imports the modules of its plugins."""
    try:
        task: Task = pickle.loads(message)
    except (Exception, SystemExit) as error:  # a module may leave the process where it cannot work
        return Failure(
            f"a worker process must be able to import what its cell is made of; it got {explain(error)}; correct the"
            " module, or do at a plugin's first use what fails at its import"
        )
    return task


class _Sender:
    """Two threads send through one pipe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()

    def send(self, message: object) -> None:
        with self.lock:
            self.connection.send(message)


def _beat(sender: _Sender, at_work: Sequence[Task]) -> None:
    with contextlib.suppress(OSError):
        while True:
            time.sleep(BEAT_SECONDS)
            if at_work:
                sender.send(Alive())


class _Throttled:
    """Passes progress on at most ten times a second, and always the last round and what is done after it."""

    def __init__(self, sender: _Sender) -> None:
        self.sender = sender
        self.sent = -1.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.round >= progress.rounds or now - self.sent > 0.1:
            self.sent = now
            self.sender.send(progress)


def _die_with_parent(at_work: Sequence[Task]) -> None:
    """A parent killed by SIGKILL cannot end its workers; they notice by themselves, and leave no messages behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        for task in tuple(at_work):
            while task.spool is not None and task.spool.exists():  # the other thread may still be writing there
                remove_tree(task.spool)
        os._exit(1)


BEAT_SECONDS = 2.0
