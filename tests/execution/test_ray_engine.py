"""The Ray engine says of a cell that ran out of memory what the local one says: the phase, and what its data set takes.

The tests run with Ray where it is installed, and everywhere with a stand-in that computes at once in this process.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from execution_runs import suite

from fglaudit.execution import ray_engine
from fglaudit.execution.engine import Listener
from fglaudit.execution.ray_engine import RayEngine, Rounds
from fglaudit.execution.worker import Progress, Task
from fglaudit.finding import CellRecord, Status


class RayError(Exception):
    """As Ray's."""


class OutOfMemoryError(RayError):
    """As Ray's."""


class WorkerCrashedError(RayError):
    """As Ray's."""


class StandIn:
    """What the engine uses of Ray, computed at once."""

    exceptions = types.SimpleNamespace(
        RayError=RayError, OutOfMemoryError=OutOfMemoryError, WorkerCrashedError=WorkerCrashedError
    )

    def init(self, **_: Any) -> None: ...

    def shutdown(self) -> None: ...

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda made: types.SimpleNamespace(
            remote=lambda *a: self._actor(made) if made is Rounds else _at_once(made, a)
        )

    def _actor(self, made: Any) -> Any:
        held = made()
        return types.SimpleNamespace(
            note=types.SimpleNamespace(remote=held.note),
            reached=types.SimpleNamespace(remote=lambda n: _at_once(held.reached, (n,))),
        )

    def wait(self, handles: Sequence[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return list(handles[:1]), list(handles[1:])

    def get(self, handle: Callable[[], Any], **_: Any) -> Any:
        return handle()


def _at_once(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    try:
        result = function(*arguments)
    except RayError as error:
        caught = error

        def fail() -> Any:
            raise caught

        return fail
    return lambda: result


class Heard(Listener):
    """Keeps the records."""

    def __init__(self) -> None:
        self.records: list[CellRecord] = []

    def finished(self, task: Task, record: CellRecord) -> None:
        self.records.append(record)


def reason(engine: RayEngine, runner: Any) -> str:
    """Return why the first cell failed."""
    heard, cell = Heard(), suite().cells()[0]
    engine.run([Task(cell, "sound", "cpu")], runner, heard)
    rows = heard.records[0].findings
    assert rows and all(row.status is Status.FAILED for row in rows)
    return rows[0].reason


def out_of_memory(cell: Any, *, progress: Any, **_: Any) -> CellRecord:
    progress(1, 2)
    raise MemoryError


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "import_ray", StandIn)


@pytest.mark.usefixtures("stand_in")
def test_out_of_memory_in_a_cell_names_phase_and_estimate() -> None:
    said = reason(RayEngine(), out_of_memory)
    assert said.startswith("out of memory while training (round 1 of 2) (MemoryError: no details)") and "MiB" in said


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("error", "begin"),
    [
        (
            OutOfMemoryError("killed " * 200),
            "out of memory while attacking and scoring (OutOfMemoryError: killed killed",
        ),
        (
            WorkerCrashedError(),
            "the worker process ended while attacking and scoring (WorkerCrashedError: no details); ",
        ),
    ],
)
def test_a_lost_worker_names_phase_and_estimate(error: RayError, begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(task: Task, number: int, rounds: Any, *_: Any) -> CellRecord:
        rounds.note.remote(number, Progress(2, 2))
        raise error

    monkeypatch.setattr(ray_engine, "_ray_compute", lost)
    said = reason(RayEngine(), None)
    assert said.startswith(begin) and "MiB" in said and len(said) < 1200


@pytest.mark.usefixtures("stand_in")
def test_what_is_no_matter_of_memory_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> CellRecord:
        raise RayError("the node was removed")

    monkeypatch.setattr(ray_engine, "_ray_compute", lost)
    assert reason(RayEngine(), None).startswith("RayError: the node was removed")


def test_with_ray_itself() -> None:
    pytest.importorskip("ray")
    said = reason(RayEngine(), out_of_memory)
    assert said.startswith("out of memory while training (round 1 of 2) (MemoryError: no details)") and "MiB" in said
