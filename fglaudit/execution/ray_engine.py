"""The engine that computes cells as Ray tasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.engine import CHECK_SECONDS, Engine, Listener, Running, check_timeout, failed, too_long
from fglaudit.execution.worker import Failure, Runner, Task, explain
from fglaudit.finding import CellRecord


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
            waiting, running = deque(tasks), dict[Any, tuple[Task, float]]()
            late: set[Any] = set()
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    task = waiting.popleft()
                    if not listener.wanted(task):
                        continue
                    listener.started(task)
                    handle = remote.remote(task, runner, self.threads, registry.loaded_files())
                    running[handle] = (task, time.monotonic())
                if not running:
                    break
                done, _ = ray.wait(list(running), num_returns=1, timeout=CHECK_SECONDS)
                now = time.monotonic()
                for handle, (_, began) in running.items():
                    if (
                        self.cell_timeout is not None
                        and now - began > self.cell_timeout
                        and handle not in late | {*done}
                    ):
                        late.add(handle)
                        ray.cancel(handle, force=True)
                listener.checked([Running(task, now - began) for task, began in running.values()])
                for handle in done:
                    task, _ = running.pop(handle)
                    try:
                        outcome = ray.get(handle)
                    except ray.exceptions.RayError as error:  # the worker died, or was ended
                        ended = self.cell_timeout is not None and handle in late
                        outcome = Failure(too_long(self.cell_timeout or 0, "running") if ended else explain(error))
                    listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)
        finally:
            ray.shutdown()


def _ray_compute(task: Task, runner: Runner, threads: int, plugin_files: dict[str, str]) -> CellRecord | Failure:
    import torch

    from fglaudit.execution.worker import compute

    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    return compute(task, runner, lambda done, total: None)


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise FglauditError(
            "--engine ray needs Ray, which is not installed; run: pip install 'fglaudit[ray]'"
        ) from error
    return ray
