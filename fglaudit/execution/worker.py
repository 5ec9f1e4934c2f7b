"""A worker process: computes one cell at a time and reports progress. Its parent is :mod:`fglaudit.execution.engine`.

Each worker has a pipe of its own, so that when one is killed it is known which cell it was computing; a shared pool
would lose the cells of all its workers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import torch

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord
from fglaudit.suite.cell import Cell


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
    ) -> CellRecord:
        """Return the record of ``cell``; ``progress`` is called with (round, rounds)."""


@dataclass(frozen=True)
class Task:
    """One cell to compute.

    Attributes:
        recording, truth: folders for what the cell keeps of its run, apart from each other; None to keep nothing.
    """

    cell: Cell
    suite: str
    device: str
    recording: Path | None = None
    truth: Path | None = None


@dataclass(frozen=True)
class Progress:
    """Sent by a worker: ``round`` of ``rounds`` is done."""

    round: int
    rounds: int


@dataclass(frozen=True)
class Failure:
    """Sent by a worker instead of a record: why the cell gave none."""

    reason: str


def compute(task: Task, runner: Runner, progress: Callable[[int, int], None]) -> CellRecord | Failure:
    """Run one cell; whatever it raises becomes a :class:`Failure`, so that the other cells go on."""
    for folder in (task.recording, task.truth):
        if folder is not None and folder.exists():  # of an attempt that was killed
            shutil.rmtree(folder)
    try:
        return runner(
            task.cell,
            suite=task.suite,
            device=torch.device(task.device),
            progress=progress,
            recording_dir=task.recording,
            truth_dir=task.truth,
        )
    except Exception as error:
        return Failure(explain(error))


def explain(error: BaseException) -> str:
    """Return one line for the ``reason`` column."""
    text = " ".join(str(error).split())
    if isinstance(error, FglauditError):
        return text
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text
    name = type(error).__name__
    if memory:
        return (
            f"out of memory ({name}: {text or 'no details'}); use fewer --jobs, fewer observers or a smaller data set"
        )
    return f"{name}: {text}" if text else name


def serve(connection: Connection, runner: Runner, threads: int, plugin_files: Mapping[str, str]) -> None:
    """Body of a worker process: compute the tasks that arrive until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends its workers
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    connection.send(None)  # ready: tasks may name classes of the plugin files
    with contextlib.suppress(EOFError):
        while True:
            task: Task = connection.recv()
            connection.send(compute(task, runner, _Throttled(connection)))


class _Throttled:
    """Passes progress on at most ten times a second, and always the last round."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sent = -1.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total or now - self.sent > 0.1:
            self.sent = now
            self.connection.send(Progress(done, total))


def _die_with_parent() -> None:
    """A parent killed by SIGKILL cannot end its workers; they notice by themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
