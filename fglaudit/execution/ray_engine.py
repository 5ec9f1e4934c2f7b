"""The engine that computes cells as Ray tasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.data_child import estimate, without_memory
from fglaudit.execution.engine import CHECK_SECONDS, Engine, Listener, Running, check_timeout, failed, too_long
from fglaudit.execution.worker import Failure, Progress, Runner, Task, explain, phase
from fglaudit.finding import CellRecord

_LONGEST = 500
"""Characters of what Ray says of a lost task: it adds advice of a page."""


@dataclass
class RayEngine(Engine):
    """Ray tasks, on one machine or a cluster (``address``).

    Attributes:
        address: of a running cluster, or empty to start Ray here.
        jobs: cells computed at the same time.
        threads: CPU threads, and Ray CPUs, of each.
    """

    address: str = ""
    jobs: int = 1
    threads: int = 1
    cell_timeout: float | None = None

    def __post_init__(self) -> None:
        check_timeout(self.cell_timeout)

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        ray = import_ray()
        ray.init(address=self.address or None, log_to_driver=False)
        try:
            remote = ray.remote(num_cpus=self.threads, max_retries=0)(_ray_compute)
            rounds = ray.remote(num_cpus=0)(Rounds).remote()
            waiting, running = deque(enumerate(tasks)), dict[Any, tuple[int, Task, float]]()
            late: set[Any] = set()
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    number, task = waiting.popleft()
                    if not listener.wanted(task):
                        continue
                    listener.started(task)
                    handle = remote.remote(task, number, rounds, runner, self.threads, registry.loaded_files())
                    running[handle] = (number, task, time.monotonic())
                if not running:
                    break
                done, _ = ray.wait(list(running), num_returns=1, timeout=CHECK_SECONDS)
                now = time.monotonic()
                for handle, (_, _, began) in running.items():
                    if (
                        self.cell_timeout is not None
                        and now - began > self.cell_timeout
                        and handle not in late | {*done}
                    ):
                        late.add(handle)
                        ray.cancel(handle, force=True)
                listener.checked([Running(task, now - began) for _, task, began in running.values()])
                for handle in done:
                    number, task, _ = running.pop(handle)
                    try:
                        outcome = ray.get(handle)
                    except ray.exceptions.RayError as error:  # the worker died, or was ended
                        ended = self.cell_timeout is not None and handle in late
                        doing = phase(_reached(ray, rounds, number))
                        late_reason = too_long(self.cell_timeout or 0, doing)
                        outcome = Failure(late_reason if ended else _lost(ray, error, doing, task))
                    listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)
        finally:
            ray.shutdown()


class Rounds:
    """A Ray actor that knows how far every task was when it was last heard of."""

    def __init__(self) -> None:
        self._reached: dict[int, Progress] = {}

    def note(self, task: int, progress: Progress) -> None:
        """Keep how far the task with this number is."""
        self._reached[task] = progress

    def reached(self, task: int) -> Progress | None:
        """Return what was last noted of a task."""
        return self._reached.get(task)


def _reached(ray: Any, rounds: Any, task: int) -> Progress | None:
    """Return how far a task was; None where the actor is lost too."""
    try:
        found: Progress | None = ray.get(rounds.reached.remote(task), timeout=CHECK_SECONDS)
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
    task: Task, number: int, rounds: Any, runner: Runner, threads: int, plugin_files: dict[str, str]
) -> CellRecord | Failure:
    import torch

    from fglaudit.execution.worker import compute

    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    return compute(task, runner, lambda done, total: rounds.note.remote(number, Progress(done, total)))


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise FglauditError(
            "--engine ray needs Ray, which is not installed; run: pip install 'fglaudit[ray]'"
        ) from error
    return ray
