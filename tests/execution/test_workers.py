"""Workers that die, hang or never start cost at most the cell that they had begun."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from execution_runs import suite
from harness_runners import KILLED, SLOW, Unreadable, misbehave
from rich.console import Console

from fglaudit.errors import FglauditError
from fglaudit.execution.display import LiveProgress, PlainProgress, heartbeat, progress_on
from fglaudit.execution.engines.engine import Listener, Running
from fglaudit.execution.engines.local_engine import START_TRIES, LocalEngine
from fglaudit.execution.engines.worker import Progress, Runner, Task
from fglaudit.finding import CellRecord, Status


class Heard(Listener):
    def __init__(self) -> None:
        self.records: list[CellRecord] = []
        self.begun: list[Task] = []
        self.running: list[Running] = []

    def started(self, task: Task) -> None:
        self.begun.append(task)

    def finished(self, task: Task, record: CellRecord) -> None:
        self.records.append(record)

    def checked(self, running: Iterable[Running]) -> None:
        self.running += running


def tasks(seeds: list[int], folder: Path | None = None) -> list[Task]:
    spools = [folder / str(seed) if folder else None for seed in seeds]
    return [Task(c, "small", "cpu", spool=s) for c, s in zip(suite(seeds=seeds).cells(), spools, strict=True)]


def kill_at_first(engine: LocalEngine, when: str, times: int) -> threading.Thread:
    """Kill ``times`` workers of ``engine`` while they import, or as soon as they are ready and idle."""

    def body() -> None:
        killed: set[int] = set()
        while len(killed) < times:
            for worker in list(engine._workers):
                pid = worker.process.pid
                if pid is not None and pid not in killed and (when == "starting" or worker.ready):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            time.sleep(0.01)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_a_worker_killed_while_it_starts_is_replaced() -> None:
    engine, heard = LocalEngine(1), Heard()
    thread = kill_at_first(engine, "starting", 2)
    engine.run(tasks([0, 6]), misbehave, heard)
    thread.join(1)
    assert not thread.is_alive()
    assert {row.status for record in heard.records for row in record.findings} == {Status.OK}
    assert len(heard.begun) == 2


def test_workers_that_never_start_end_the_run() -> None:
    engine, heard = LocalEngine(1), Heard()
    kill_at_first(engine, "starting", START_TRIES)
    with pytest.raises(FglauditError, match=r"must be able to start; .* killed by SIGKILL"):
        engine.run(tasks([0]), misbehave, heard)
    assert heard.records == []


def test_an_idle_worker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    engine, heard = LocalEngine(2, cell_timeout=3.0), Heard()

    class Killer(Heard):
        def finished(self, task: Task, record: CellRecord) -> None:
            heard.finished(task, record)
            for worker in engine._workers:
                if worker.task is None and worker.ready and worker.process.pid:
                    os.kill(worker.process.pid, signal.SIGKILL)

    engine.run(tasks([0, 6, 7, 8]), misbehave, Killer())
    assert sorted(r.findings[0].seed for r in heard.records) == [0, 6, 7, 8]
    assert {row.status for record in heard.records for row in record.findings} == {Status.OK}


def test_a_cell_without_end_is_ended_and_the_others_go_on(tmp_path: Path) -> None:
    engine, heard = LocalEngine(1, cell_timeout=3.0), Heard()
    engine.run(tasks([SLOW, 0, KILLED], tmp_path), misbehave, heard)
    slow, fine, killed = (record.findings[0] for record in heard.records)
    assert slow.status is Status.FAILED and "--cell-timeout" in slow.reason and "raise the limit" in slow.reason
    assert fine.status is Status.OK
    assert killed.status is Status.FAILED and "SIGKILL" in killed.reason and "while loading data" in killed.reason
    assert re.search(r"labels and edges of its data set take about [\d.]+ KiB", killed.reason)
    assert heard.running and heard.running[0].task.cell.seed == SLOW
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "it got ImportError: this module needs a display"),
        ("leaves", "it got SystemExit: no display"),
        ("cannot be sent", "pickling raised TypeError: a handle"),
        ("dies", f"{START_TRIES} ended one after the other before they began this one, the last one ended with exit"),
    ],
)
def test_a_cell_that_workers_cannot_read_fails_and_the_others_go_on(
    how: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = LocalEngine._start, []

    def counted(engine: LocalEngine, runner: Runner) -> object:
        begun.append(runner)
        assert len(begun) <= START_TRIES + 1, "workers are started for ever"
        return start(engine, runner)

    monkeypatch.setattr(LocalEngine, "_start", counted)
    engine, heard = LocalEngine(1, cell_timeout=60.0), Heard()
    first, second = tasks([0, 6])
    unreadable = dataclasses.replace(first, recording=Unreadable(how))  # type: ignore[arg-type]
    engine.run([unreadable, second], misbehave, heard)
    assert [record.findings[0].status for record in heard.records] == [Status.FAILED, Status.OK]
    assert said in heard.records[0].findings[0].reason
    assert heard.begun == [unreadable, second], "the display is told of a cell before it hears of its end"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
def test_impossible_limits_are_refused(seconds: float) -> None:
    with pytest.raises(FglauditError, match="--cell-timeout must be above 0"):
        LocalEngine(1, cell_timeout=seconds)


def test_the_display_says_what_a_cell_does_and_that_it_is_silent() -> None:
    (task,) = tasks([0])
    assert heartbeat(Running(task, 5.0, 1.0)) == "loading data and preparing the training, 5 s since it began"
    assert heartbeat(Running(task, 70, 40, Progress(3, 9))).endswith(
        "(round 3 of 9), 70 s since it began, no sign of life for 40 s"
    )
    assert heartbeat(Running(task, 70, None, Progress(9, 9))) == "attacking and scoring, 70 s since it began"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_are_drawn_where_lines_can_be_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dumb terminal showed nothing until the end, and a log with FORCE_COLOR every state of every bar."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(progress_on(Console(file=Terminal()), 1, 0, []), LiveProgress)
    assert isinstance(progress_on(Console(file=io.StringIO()), 1, 0, []), PlainProgress)
    assert isinstance(progress_on(Console(file=io.StringIO(), force_terminal=True), 1, 0, []), PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress_on(Console(file=Terminal()), 1, 0, []), PlainProgress)


def test_a_worker_is_ready_soon_because_libraries_of_few_cells_wait() -> None:
    code = (
        "import sys\nimport fglaudit.execution.run_cell, fglaudit.execution.engines.worker\n"
        "heavy = {'pandas', 'networkx', 'sklearn', 'matplotlib', 'tenseal', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
