"""The Ray engine says of a cell that ran out of memory what the local one says: the phase, and what its data set takes.

The tests run with Ray where it is installed, and everywhere with a stand-in that computes at once in this process.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from execution_runs import suite
from harness_runners import measure
from ray_stand_in import (
    LocalRayletDiedError,
    NodeDiedError,
    OneMachine,
    OutOfMemoryError,
    RayError,
    StandIn,
    WorkerCrashedError,
)

from fglaudit.errors import FglauditError
from fglaudit.execution.engines import ray_engine
from fglaudit.execution.engines.by_name import make_engine
from fglaudit.execution.engines.engine import Listener, failed
from fglaudit.execution.engines.ray_engine import RayEngine
from fglaudit.execution.engines.worker import Progress, Task
from fglaudit.finding import CellRecord, Status


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
    assert said.startswith("out of memory while training (round 1 of 2) (MemoryError: no details)") and "KiB" in said


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
    assert said.startswith(begin) and "KiB" in said and len(said) < 1200


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("error", [WorkerCrashedError(), NodeDiedError("gone"), LocalRayletDiedError()])
def test_a_lost_cell_is_begun_again(error: RayError, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def lost_at_first(task: Task, *_: Any) -> CellRecord:
        tried.append(task.cell.seed)
        if len(tried) <= ray_engine.RETRIES:
            raise error
        return failed(task, "reached")

    monkeypatch.setattr(ray_engine, "_ray_compute", lost_at_first)
    assert reason(RayEngine(), None) == "reached"
    assert len(tried) == ray_engine.RETRIES + 1


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("error", [OutOfMemoryError("killed"), RayError("another")])
def test_what_would_happen_again_is_not_tried_again(error: RayError, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def lost(task: Task, *_: Any) -> CellRecord:
        tried.append(task.cell.seed)
        raise error

    monkeypatch.setattr(ray_engine, "_ray_compute", lost)
    reason(RayEngine(), None)
    assert len(tried) == 1


@pytest.mark.parametrize(("limit", "status"), [(10.0, Status.OK), (3.0, Status.FAILED)])
def test_waiting_in_the_queue_is_not_counted_as_taking_long(
    limit: float, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three cells of 8 s each, one after the other."""
    clock = [0.0]
    monkeypatch.setattr(ray_engine, "import_ray", lambda: OneMachine(clock))
    monkeypatch.setattr(ray_engine, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    heard, cells = Heard(), suite(seeds=[0, 6, 7]).cells()
    RayEngine(jobs=3, cell_timeout=limit).run([Task(cell, "small", "cpu") for cell in cells], measure, heard)
    rows = [row for record in heard.records for row in record.findings]
    assert len(heard.records) == 3 and {row.status for row in rows} == {status}
    assert all(("--cell-timeout" in row.reason) == (status is Status.FAILED) for row in rows)


@pytest.mark.usefixtures("stand_in")
def test_of_a_lost_worker_the_messages_are_removed_and_files_of_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording, spool = tmp_path / "recording", tmp_path / "spool"

    def lost(*_: Any) -> CellRecord:
        for folder, name in ((recording, "side.json"), (recording, "notes.txt"), (spool, "messages")):
            folder.mkdir(exist_ok=True)
            (folder / name).touch()
        raise WorkerCrashedError

    monkeypatch.setattr(ray_engine, "_ray_compute", lost)
    task, heard = Task(suite().cells()[0], "sound", "cpu", recording=recording, spool=spool), Heard()
    RayEngine().run([task], None, heard)  # type: ignore[arg-type]
    assert len(heard.records) == 1 and not spool.exists()
    ray_engine._clear(task)
    assert [path.name for path in recording.iterdir()] == ["notes.txt"]


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("asked", [{"gpus": 2.0}, {"threads": 8}, {"memory": 9.0}])
def test_what_no_machine_has_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(FglauditError, match=r"one machine of the Ray cluster must have .*; they have .*CPU"):
        RayEngine(**asked).run([Task(suite().cells()[0], "sound", "cuda")], None, Heard())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"gpus": -1.0}, "--gpus is a number from 0 on; got -1"),
        ({"gpus": 1.5}, "--gpus is a whole number, or a share of one GPU; got 1.5"),
        ({"memory": float("nan")}, "--memory is a number from 0 on; got nan"),
    ],
)
def test_shares_that_cannot_be_had(asked: dict[str, float], rule: str) -> None:
    with pytest.raises(FglauditError, match=rule):
        RayEngine(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["gpus", "memory"])
def test_options_of_ray_are_refused_without_it(option: str) -> None:
    with pytest.raises(FglauditError, match=f"--{option} is for --engine ray"):
        make_engine("local", 1, **{option: 1.0})  # type: ignore[arg-type]


@pytest.mark.usefixtures("stand_in")
def test_what_is_no_matter_of_memory_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> CellRecord:
        raise RayError("the node was removed")

    monkeypatch.setattr(ray_engine, "_ray_compute", lost)
    assert reason(RayEngine(), None).startswith("RayError: the node was removed")


def test_with_ray_itself() -> None:
    ray = pytest.importorskip("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    said = reason(RayEngine(), out_of_memory)
    assert said.startswith("out of memory while training (round 1 of 2) (MemoryError: no details)") and "KiB" in said
