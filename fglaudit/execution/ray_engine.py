"""The engine that computes cells as Ray tasks."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.data_child import estimate, without_memory
from fglaudit.execution.engine import CHECK_SECONDS, Engine, Listener, Running, check_timeout, failed, too_long
from fglaudit.execution.worker import Failure, Progress, Runner, Task, explain, phase
from fglaudit.finding import CellRecord
from fglaudit.own_files import remove_tree

RETRIES = 2
"""How often a cell is begun again whose worker, or whose machine, was lost."""
_LONGEST = 500
"""Characters of what Ray says of a lost task: it adds advice of a page."""


@dataclass
class RayEngine(Engine):
    """Ray tasks, on one machine or a cluster (``address``).

    Attributes:
        address: of a running cluster, or empty to start Ray here.
        jobs: cells computed at the same time.
        threads: CPU threads, and Ray CPUs, of each.
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

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        ray = import_ray()
        ray.init(address=self.address or "local", log_to_driver=False)
        try:
            _check_room(ray, self.needs)
            options: dict[str, Any] = {"num_cpus": self.threads, "max_retries": 0}
            options |= {"num_gpus": self.gpus, "max_calls": 1} if self.gpus else {}
            options |= {"memory": int(self.needs["memory"])} if self.memory else {}
            remote = ray.remote(**options)(_ray_compute)
            rounds = ray.remote(num_cpus=0, max_restarts=-1)(Rounds).remote()
            waiting, running = deque(enumerate(tasks)), dict[Any, tuple[int, Task, float]]()
            late: set[Any] = set()
            begun: Counter[int] = Counter()
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    number, task = waiting.popleft()
                    if not begun[number]:
                        if not listener.wanted(task):
                            continue
                        listener.started(task)
                    begun[number] += 1
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
                        if not ended and begun[number] <= RETRIES and _is_lost(ray, error):
                            _clear(task)
                            waiting.append((number, task))
                            continue
                        doing = phase(_reached(ray, rounds, number))
                        late_reason = too_long(self.cell_timeout or 0, doing)
                        outcome = Failure(late_reason if ended else _lost(ray, error, doing, task))
                    listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)
        finally:
            ray.shutdown()


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
    """Remove what a lost worker left of a cell."""
    for folder in (task.spool, task.recording, task.truth):
        if folder is not None:
            remove_tree(folder)


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
