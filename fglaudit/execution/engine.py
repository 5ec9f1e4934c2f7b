"""Engines compute the cells of a suite in parallel. Whatever happens to one cell, the others go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError, unknown
from fglaudit.execution.rows import blank_record
from fglaudit.execution.worker import Failure, Progress, Runner, Task, explain, serve
from fglaudit.finding import CellRecord, Status


class Listener:
    """Is notified of the progress of a run. Every hook does nothing by default."""

    def started(self, task: Task) -> None: ...

    def progressed(self, task: Task, progress: Progress) -> None: ...

    def finished(self, task: Task, record: CellRecord) -> None: ...


class Engine(ABC):
    """Computes cells somewhere.

    Attributes:
        threads: CPU threads of each cell. Sums in another number of threads round differently, so a run keeps its
            number.
    """

    threads: int = 1

    @abstractmethod
    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        """Compute ``tasks``; each ends in exactly one ``listener.finished`` call, made in this process.

        A cell that raises, runs out of memory or loses its process ends in a record with ``failed`` rows.
        """


def failed(task: Task, reason: str) -> CellRecord:
    """Return the record of a cell that gave no result: a ``failed`` row per observer x attack."""
    return blank_record(task.cell, task.suite, Status.FAILED, reason)


def available_cores() -> int:
    """Number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: Task | None = None  # the one being computed
    ready: bool = False


@dataclass
class LocalEngine(Engine):
    """Worker processes on this machine.

    One worker is used even for a single job: a cell that exhausts memory is then killed without the run.

    Attributes:
        jobs: cells computed at the same time.
        threads: CPU threads of each worker; by default the cores are shared evenly.
    """

    jobs: int = 1
    threads: int = 0
    _workers: list[_Worker] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise FglauditError(f"--jobs must be 1 or more; got {self.jobs}")
        self.threads = self.threads or max(1, available_cores() // self.jobs)

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        waiting = deque(tasks)
        try:
            while waiting or any(worker.task for worker in self._workers):
                busy = sum(worker.task is not None for worker in self._workers)
                while len(self._workers) < min(self.jobs, busy + len(waiting)):
                    self._workers.append(self._start(runner))
                for worker in self._workers:
                    if worker.ready and worker.task is None and waiting:
                        self._assign(worker, waiting.popleft(), listener)
                for source in wait([worker.connection for worker in self._workers]):
                    self._hear(next(w for w in self._workers if w.connection is source), listener)
        finally:
            for worker in self._workers:
                worker.process.terminate()
                worker.connection.close()
            for worker in self._workers:
                worker.process.join()
            self._workers.clear()

    def _start(self, runner: Runner) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a forked torch deadlocks in its thread pool
        here, there = context.Pipe()
        process = context.Process(
            target=serve, args=(there, runner, self.threads, registry.loaded_files()), daemon=True
        )
        process.start()
        there.close()  # so that the end of the process closes the pipe
        return _Worker(process, here)

    def _assign(self, worker: _Worker, task: Task, listener: Listener) -> None:
        worker.task = task
        listener.started(task)
        try:
            worker.connection.send(task)
        except OSError:
            self._lost(worker, listener)

    def _hear(self, worker: _Worker, listener: Listener) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            return self._lost(worker, listener)
        if not worker.ready:
            worker.ready = True
        elif isinstance(message, Progress) and worker.task is not None:
            listener.progressed(worker.task, message)
        elif worker.task is not None:
            task, worker.task = worker.task, None
            listener.finished(task, failed(task, message.reason) if isinstance(message, Failure) else message)
        return None

    def _lost(self, worker: _Worker, listener: Listener) -> None:
        """A worker died: its cell has failed; a new worker takes its place."""
        worker.process.join()
        self._workers.remove(worker)
        cause = _cause(worker.process.exitcode)
        if worker.task is None:
            raise FglauditError(
                f"worker processes must be able to start; one {cause} before its first cell; see its output above"
            )
        listener.finished(worker.task, failed(worker.task, f"the worker process {cause}"))


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    hint = (
        "; the system does so when memory runs out: use fewer --jobs or a smaller data set" if name == "SIGKILL" else ""
    )
    return f"was killed by {name}{hint}"


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

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        ray = _import_ray()
        ray.init(address=self.address or None, log_to_driver=False)
        try:
            remote = ray.remote(num_cpus=self.threads, max_retries=0)(_ray_compute)
            waiting, running = deque(tasks), dict[Any, Task]()
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    task = waiting.popleft()
                    listener.started(task)
                    running[remote.remote(task, runner, self.threads, registry.loaded_files())] = task
                done, _ = ray.wait(list(running), num_returns=1)
                task = running.pop(done[0])
                try:
                    outcome = ray.get(done[0])
                except ray.exceptions.RayError as error:  # the worker died
                    outcome = Failure(explain(error))
                listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)
        finally:
            ray.shutdown()


def _ray_compute(task: Task, runner: Runner, threads: int, plugin_files: dict[str, str]) -> CellRecord | Failure:
    import torch

    from fglaudit.execution.worker import compute

    torch.set_num_threads(threads)
    registry.load_files(plugin_files)
    return compute(task, runner, lambda done, total: None)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise FglauditError(
            "--engine ray needs Ray, which is not installed; run: pip install 'fglaudit[ray]'"
        ) from error
    return ray


def make_engine(name: str, jobs: int, threads: int = 0, address: str = "") -> Engine:
    """Return the engine called ``name``: local or ray.

    Raises:
        FglauditError: unknown name, or Ray is not installed.
    """
    if name == "local":
        return LocalEngine(jobs, threads)
    if name == "ray":
        _import_ray()
        return RayEngine(address, jobs, threads or max(1, available_cores() // jobs))
    raise unknown("engine", name, ENGINES)


ENGINES = ("local", "ray")
