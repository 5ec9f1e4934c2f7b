"""What is left of a run: said from cells like those that are left, and as a least time where none was."""

from __future__ import annotations

import io
from typing import Any

import pytest
from execution_runs import suite
from rich.console import Console

from fglaudit.execution.display import LiveProgress, PlainProgress
from fglaudit.execution.engines.worker import Task
from fglaudit.execution.folder.plan import Planned
from fglaudit.execution.time_left import TimeLeft
from fglaudit.suite.cell import Cell

NOISE = [{"name": "gaussian", "epsilon": epsilon} for epsilon in (8.0, 500.0)]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


def cells(**changes: Any) -> list[Cell]:
    return suite(**changes).cells()


def test_nothing_is_said_of_cells_that_none_finished_was_like(now: list[float]) -> None:
    """The quick first cells once foretold those whose noise is audited: 205 s, then 298 s, then 431 s."""
    plain, noisy, noisier = cells(defenses=["none", *NOISE], seeds=[0])
    left = TimeLeft([plain, noisy, noisier])
    for cell, seconds, words in (
        (plain, 1.0, ""),
        (noisy, 60.0, "about 60 s left"),  # as little as epsilon changes the time of a cell
        (noisier, 60.0, ""),
    ):
        left.started(cell.hash())
        now[0] += seconds
        assert left.finished(cell.hash()) == seconds
        assert left.words() == words


def test_a_least_time_is_said_while_some_cells_are_like_none(now: list[float]) -> None:
    first, second, other, same = cells(defenses=["none", NOISE[0]])
    left = TimeLeft([first, second, other, same])
    left.started(first.hash())
    now[0] += 30.0
    left.finished(first.hash())
    assert left.words() == "at least 30 s left, without 2 cells unlike any that is finished"
    left.started(second.hash())
    now[0] += 10.0
    assert left.words().startswith("at least 20 s left"), "what a running cell has done is not left"
    now[0] += 50.0
    assert left.words() == "", "0 s is no least time"


def test_cells_that_run_at_once_share_what_is_left(now: list[float]) -> None:
    every = cells(seeds=list(range(6)))
    left = TimeLeft(every)
    for cell in every[:2]:
        left.started(cell.hash())
    now[0] += 40.0
    for cell in every[:2]:
        left.finished(cell.hash())
    assert left.words() == "about 80 s left", "four cells of 40 s, two at a time"
    for cell in every[2:4]:
        left.started(cell.hash())
    now[0] += 40.0
    left.finished(every[2].hash())
    left.finished(every[3].hash())
    left.started(every[4].hash())
    now[0] += 40.0
    left.finished(every[4].hash())
    assert left.words() == "about 40 s left", "a single cell is not divided"


@pytest.mark.parametrize("display", [PlainProgress, LiveProgress])
def test_the_displays_say_it(now: list[float], display: type[PlainProgress] | type[LiveProgress]) -> None:
    text = io.StringIO()
    first, second = cells()
    progress = display(Console(file=text, width=250, force_terminal=display is LiveProgress), 2, 0, [first, second])
    with progress:
        for cell in (first, second):
            task = Task(cell, "suite", "cpu")
            progress.started(task)
            now[0] += 50.0
            progress.finished(task, Planned.of(cell, cell.hash()).record("suite", ""))
            if cell is first and isinstance(progress, LiveProgress):
                progress.bars.refresh()
    assert "about 50 s left" in text.getvalue()
