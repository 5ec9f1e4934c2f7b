"""Stand-ins for :func:`fglaudit.execution.run_cell.run_cell` that worker processes can import: quick, and failing on
demand by the cell's seed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.data_child import Loaded, Question
from fglaudit.execution.rows import blank_record
from fglaudit.finding import CellRecord, Status
from fglaudit.suite.cell import Cell

RAISES, OUT_OF_MEMORY, KILLED, USER_ERROR, SLOW = 1, 2, 3, 4, 5
"""Seeds at which :func:`misbehave` does what the name says."""


class Unreadable:
    """Put into a task: a worker that reads it does what ``how`` says."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        if self.how == "cannot be sent":
            raise TypeError("a handle of a file")
        return _read, (self.how,)


def _read(how: str) -> object:
    if how == "raises":
        raise ImportError("this module needs a display")
    if how == "leaves":
        sys.exit("no display")
    os._exit(3)


def measure(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Callable[[int, int], None],
    recording_dir: Path | None = None,
    truth_dir: Path | None,
    spool_dir: Path | None = None,
    key: bytes = b"",
) -> CellRecord:
    """Return findings that depend on the cell alone."""
    progress(1, 2)
    progress(2, 2)
    record = blank_record(cell, suite, Status.OK, "")
    value = int(cell.hash(), 16) / 2**64
    rows = tuple(
        replace(r, accuracy=value, value=value, control=0.0, advantage=value, seconds_train=time.time())
        for r in record.findings
    )
    return replace(record, findings=rows)


def too_much(spec: DatasetSpec, question: Question | None) -> Loaded:
    """In place of loading a data set: memory runs out in the way that its seed asks for."""
    assert spec.csbm is not None
    seed = spec.csbm.seed
    if seed == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == OUT_OF_MEMORY:
        raise MemoryError
    if seed == RAISES:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
    if seed == USER_ERROR:
        raise FglauditError("a rule is broken; got 3; change it")
    return Loaded(spec.name, spec.csbm.nodes, "0" * 16, ())


def misbehave(
    cell: Cell,
    *,
    suite: str,
    device: torch.device,
    progress: Callable[[int, int], None],
    recording_dir: Path | None = None,
    truth_dir: Path | None,
    spool_dir: Path | None = None,
    key: bytes = b"",
) -> CellRecord:
    """Like :func:`measure`, but fail in the way the seed asks for."""
    if cell.seed == RAISES:
        raise ValueError("the loss\nis not finite")
    if cell.seed == OUT_OF_MEMORY:
        raise MemoryError
    if cell.seed == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.seed == USER_ERROR:
        raise FglauditError("client 3 has no nodes; raise beta")
    if cell.seed == SLOW:
        time.sleep(60)
    return measure(
        cell, suite=suite, device=device, progress=progress, recording_dir=recording_dir, truth_dir=truth_dir
    )
