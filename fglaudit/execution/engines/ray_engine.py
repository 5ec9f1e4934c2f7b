"""The engine that computes cells as Ray tasks."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.data_child import estimate, without_memory
from fglaudit.execution.engines.engine import (
    CHECK_SECONDS,
    Engine,
    Listener,
    Running,
    check_jobs,
    check_timeout,
    failed,
    too_long,
)
from fglaudit.execution.engines.worker import Failure, Progress, Runner, Task, explain, phase
from fglaudit.execution.folder.kept import remove_kept
from fglaudit.files.own import remove_tree
from fglaudit.finding import CellRecord

RETRIES = 2
"""How often a cell is begun again whose worker, or whose machine, was lost."""
_LONGEST = 500
"""Characters of what Ray says of a lost task: it adds advice of a page."""


@dataclass
class _Submitted:
    """A cell that Ray has.

    Attributes:
        number: of the task.
        attempt: by which the actor knows this submission.
        began: when a machine began with it, by our clock; None while it waits in Ray's queue, or that is not known yet.
        late: whether it was ended for taking too long.
    """

    number: int
    attempt: int
    task: Task
    began: float | None = None
    late: bool = False


@dataclass
class RayEngine(Engine):
    """Ray tasks, on one machine or a cluster (``address``).

    Attributes:
        address: of a running cluster, or empty to start Ray here.
        jobs: cells computed at the same time.
        threads: CPU threads, and Ray CPUs, of each.
        cell_timeout: seconds from when a machine begins with a cell; waiting in Ray's queue is not counted.
        gpus: GPUs of each; below 1, so many cells share one. A process that had one ends with its cell: nothing else
            gives all of its memory back.
        memory: GiB that Ray sets aside for each; 0: none.
    """

    address: str = ""
    jobs: int = 1
    threads: int = 1
    cell_timeout: float | None = None
    gpus: float = 0.0
    memory: float = 0.0

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        check_timeout(self.cell_timeout)
        check_share("--gpus", self.gpus)
        check_share("--memory", self.memory)
        if self.gpus > 1 and self.gpus % 1:
            raise FglauditError(f"--gpus is a whole number, or a share of one GPU; got {self.gpus:g}; use 1 or 0.5")

    @property
    def needs(self) -> dict[str, float]:
        """What one cell takes, in Ray's names."""
        found = {"CPU": float(self.threads), "GPU": self.gpus, "memory": float(int(self.memory * 2**30))}
        return {name: amount for name, amount in found.items() if amount}

    @property
    def options(self) -> dict[str, Any]:
        """What Ray is told of every cell's task."""
        options: dict[str, Any] = {"num_cpus": self.threads, "max_retries": 0}
        options |= {"num_gpus": self.gpus, "max_calls": 1} if self.gpus else {}
        return options | ({"memory": int(self.needs["memory"])} if self.memory else {})

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        ray = import_ray()
        ray.init(address=self.address or "local", log_to_driver=False)
        try:
            _check_room(ray, self.needs)
            _Submissions(ray, self, runner, listener).compute(tasks)
        finally:
            ray.shutdown()


class _Submissions:
    """The cells of one run: those that wait here, and those that Ray has."""

    def __init__(self, ray: Any, engine: RayEngine, runner: Runner, listener: Listener) -> None:
        self.ray, self.engine, self.runner, self.listener = ray, engine, runner, listener
        self.remote = ray.remote(**engine.options)(_ray_compute)
        self.rounds = ray.remote(num_cpus=0, max_restarts=-1)(Rounds).remote()
        self.waiting: deque[tuple[int, Task]] = deque()
        self.running: dict[Any, _Submitted] = {}
        self.attempts = itertools.count()
        self.begun: Counter[int] = Counter()

    def compute(self, tasks: Sequence[Task]) -> None:
        """Compute ``tasks``, as many at a time as the engine has jobs."""
        self.waiting.extend(enumerate(tasks))
        while True:
            self._submit()
            if not self.running:  # nothing waits either, or it would have been submitted
                return
            done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=CHECK_SECONDS)
            self._check(done)
            for handle in done:
                self._collect(handle)

    def _submit(self) -> None:
        while self.waiting and len(self.running) < self.engine.jobs:
            number, task = self.waiting.popleft()
            if not self.begun[number]:
                if not self.listener.wanted(task):
                    continue
                self.listener.started(task)
            self.begun[number] += 1
            attempt = next(self.attempts)
            threads, files = self.engine.threads, registry.loaded_files()
            handle = self.remote.remote(task, attempt, self.rounds, self.runner, threads, files)
            self.running[handle] = _Submitted(number, attempt, task)

    def _check(self, done: Sequence[Any]) -> None:
        """Tell the listener how long cells have been computed, and end those that take too long."""
        now, limit = time.monotonic(), self.engine.cell_timeout
        _note_begun(self.ray, self.rounds, self.running.values(), now)
        computed = [(h, cell, now - cell.began) for h, cell in self.running.items() if cell.began is not None]
        for handle, cell, seconds in computed:
            if limit is not None and seconds > limit and not cell.late and handle not in done:
                cell.late = True
                self.ray.cancel(handle, force=True)
        self.listener.checked([Running(cell.task, seconds) for _, cell, seconds in computed])

    def _collect(self, handle: Any) -> None:
        """Hand on what came of a cell; let it wait again where its worker or machine was lost."""
        cell = self.running.pop(handle)
        task = cell.task
        try:
            outcome = self.ray.get(handle)
        except self.ray.exceptions.RayError as error:  # the worker died, or was ended
            if not cell.late and self.begun[cell.number] <= RETRIES and _is_lost(self.ray, error):
                _clear(task)
                self.waiting.append((cell.number, task))
                return
            if task.spool is not None:  # its process could not remove the messages itself
                remove_tree(task.spool)
            doing = phase(_reached(self.ray, self.rounds, cell.attempt))
            late_reason = too_long(self.engine.cell_timeout or 0, doing)
            outcome = Failure(late_reason if cell.late else _lost(self.ray, error, doing, task))
        self.listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)


def check_share(option: str, amount: float) -> None:
    """Raise :class:`FglauditError` unless a cell can be given ``amount`` of something."""
    if not (math.isfinite(amount) and amount >= 0):
        raise FglauditError(f"{option} is a number from 0 on; got {amount:g}; leave it out for none")


def _check_room(ray: Any, needs: Mapping[str, float]) -> None:
    """Raise :class:`FglauditError` where no machine has what one cell needs: Ray would wait for one for ever."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(has.get(name, 0) >= amount for name, amount in needs.items()) for has in machines):
        listed = "; ".join(", ".join(f"{has.get(name, 0):g} {name}" for name in needs) for has in machines[:5])
        asked = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
        raise FglauditError(f"one machine of the Ray cluster must have what a cell needs, {asked}; they have {listed}")


def _is_lost(ray: Any, error: Exception) -> bool:
    """Whether the worker or its machine is gone, which may be no fault of the cell."""
    kinds = ray.exceptions
    return isinstance(error, (kinds.WorkerCrashedError, kinds.NodeDiedError, kinds.LocalRayletDiedError))


def _clear(task: Task) -> None:
    """Remove what a lost worker left of a cell; files of somebody else in the folders that a run keeps stay."""
    if task.spool is not None:
        remove_tree(task.spool)
    for folder in (task.recording, task.truth):
        if folder is not None:
            remove_kept(folder)


class Rounds:
    """A Ray actor that knows when every submitted cell was begun, and how far it was when it was last heard of."""

    def __init__(self) -> None:
        self._reached: dict[int, Progress] = {}
        self._begun: dict[int, float] = {}

    def begin(self, attempt: int) -> None:
        """Keep that a machine has begun with this submission."""
        self._begun.setdefault(attempt, time.monotonic())

    def note(self, attempt: int, progress: Progress) -> None:
        """Keep how far this submission is."""
        self.begin(attempt)  # an actor that was lost and restarted has not heard of it
        self._reached[attempt] = progress

    def reached(self, attempt: int) -> Progress | None:
        """Return what was last noted of a submission."""
        return self._reached.get(attempt)

    def seconds(self, attempts: Sequence[int]) -> dict[int, float]:
        """Return how long ago those of ``attempts`` were begun that were: clocks of two machines are not compared."""
        now = time.monotonic()
        return {attempt: now - self._begun[attempt] for attempt in attempts if attempt in self._begun}


def _note_begun(ray: Any, rounds: Any, running: Iterable[_Submitted], now: float) -> None:
    """Fill in when cells were begun that were waiting when we last asked: what waits in Ray's queue takes no time."""
    asked = {cell.attempt: cell for cell in running if cell.began is None}
    if not asked:
        return
    try:
        found: dict[int, float] = ray.get(rounds.seconds.remote(list(asked)), timeout=CHECK_SECONDS)
    except ray.exceptions.RayError:  # the actor is being restarted: it is asked again
        return
    for attempt, seconds in found.items():
        asked[attempt].began = now - seconds


def _reached(ray: Any, rounds: Any, attempt: int) -> Progress | None:
    """Return how far a submission was; None where the actor is lost too."""
    try:
        found: Progress | None = ray.get(rounds.reached.remote(attempt), timeout=CHECK_SECONDS)
    except ray.exceptions.RayError:
        return None
    return found


def _lost(ray: Any, error: Exception, doing: str, task: Task) -> str:
    """Return why a task gave no result that was in the phase ``doing``: as the local engine says it."""
    cause = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST] or 'no details'}"
    if isinstance(error, ray.exceptions.OutOfMemoryError):  # Ray ended it before the system did
        return without_memory(task.cell.dataset, f"while {doing}", cause)
    if isinstance(error, ray.exceptions.WorkerCrashedError):
        reason = f"the worker process ended while {doing} ({cause})"
        return f"{reason}; the system does so when memory runs out: {estimate(task.cell.dataset)}"
    return explain(error, doing, task.cell.dataset)


def _ray_compute(
    task: Task, attempt: int, rounds: Any, runner: Runner, threads: int, plugin_files: dict[str, str]
) -> CellRecord | Failure:
    import torch

    from fglaudit.execution.engines.worker import compute

    rounds.begin.remote(attempt)
    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    return compute(task, runner, lambda progress: rounds.note.remote(attempt, progress))


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise FglauditError(
            "--engine ray needs Ray, which is not installed; run: pip install 'fglaudit[ray]'"
        ) from error
    return ray
