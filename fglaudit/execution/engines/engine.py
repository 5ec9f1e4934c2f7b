"""Engines compute the cells of a suite in parallel. Whatever happens to one cell, the others go on."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fglaudit.errors import FglauditError
from fglaudit.execution.engines.cores import available_cores as available_cores
from fglaudit.execution.engines.worker import Progress, Runner, Task
from fglaudit.execution.rows import blank_record
from fglaudit.finding import CellRecord, Status

CHECK_SECONDS = 2.0
"""How often an engine looks after its running cells."""
LONGEST = 366 * 24 * 3600.0
"""Seconds that ``--cell-timeout`` may ask for at most."""


@dataclass(frozen=True)
class Running:
    """A cell that is being computed.

    Attributes:
        seconds: since it began.
        silent: seconds since its process last gave a sign of life; None where the engine cannot know.
        progress: the last round that was reported.
    """

    task: Task
    seconds: float
    silent: float | None = None
    progress: Progress | None = None


class Listener:
    """Is notified of the progress of a run. Every hook does nothing by default."""

    def wanted(self, task: Task) -> bool:
        """Asked before a cell is handed out; False: another process has it, and nothing more is heard of it here."""
        return True

    def started(self, task: Task) -> None: ...

    def progressed(self, task: Task, progress: Progress) -> None: ...

    def finished(self, task: Task, record: CellRecord) -> None: ...

    def checked(self, running: Sequence[Running]) -> None:
        """Called every few seconds with all cells that are being computed."""


class Engine(ABC):
    """Computes cells somewhere.

    Attributes:
        threads: CPU threads of each cell. Sums in another number of threads round differently, so a run keeps its
            number.
        cell_timeout: seconds after which a cell is ended and counts as failed; None: never.
    """

    threads: int = 1
    cell_timeout: float | None = None

    @abstractmethod
    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        """Compute the ``tasks`` that are wanted; each ends in exactly one ``listener.finished`` call, made in this
        process.

        A cell that raises, runs out of memory, takes too long or loses its process ends in a record with ``failed``
        rows.
        """


def failed(task: Task, reason: str) -> CellRecord:
    """Return the record of a cell that gave no result: a ``failed`` row per observer x attack."""
    return blank_record(task.cell, task.suite, Status.FAILED, reason)


def too_long(limit: float, what: str) -> str:
    """Return the reason of a cell that was ended for taking too long while doing ``what``."""
    return (
        f"a cell may take {limit:g} s (--cell-timeout); this one was {what} when it was ended; raise the limit, or use"
        " fewer rounds, observers or attacks"
    )


def check_jobs(jobs: int) -> None:
    """Raise :class:`FglauditError` unless ``jobs`` cells can be computed at a time."""
    if jobs < 1:
        raise FglauditError(f"--jobs must be 1 or more; got {jobs}; leave it out for one per core")


def check_timeout(seconds: float | None) -> None:
    """Raise :class:`FglauditError` unless a cell can be given ``seconds``."""
    if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
        raise FglauditError(
            f"--cell-timeout must be above 0 and at most {LONGEST:.0f} seconds; got {seconds:g}; leave it out for none"
        )


def default_jobs(cells: int, device: str) -> int:
    """Return how many of ``cells`` to compute at a time: one per core as memory allows, one on a GPU.

    One thread per cell is faster than all cores on one cell: most tensors here are too small to share out.
    """
    if device != "cpu":
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else JOB_MEMORY
    return max(1, min(cells, available_cores(), memory // JOB_MEMORY))


JOB_MEMORY = 3 * 2**30
"""Bytes set aside for a cell in :func:`default_jobs`."""
