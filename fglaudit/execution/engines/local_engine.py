"""The engine that computes cells in worker processes on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.child import start_child
from fglaudit.execution.engines.cores import threads_of
from fglaudit.execution.engines.data_child import estimate
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
from fglaudit.execution.engines.worker import Alive, Failure, Progress, Runner, Started, Task, explain, phase, serve
from fglaudit.files.own import remove_tree

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**29)}
"""Arrays of up to 32 MiB are taken from memory that a worker keeps, up to half a GiB: fetching fresh pages from the
system again and again costs more than many a computation on them."""
START_TRIES = 5
"""Processes that may end, one after the other, before any of them was ready; and before they began one same cell."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    ready: bool = False
    task: Task | None = None  # the one assigned
    began: float | None = None  # when it confirmed the task
    heard: float = field(default_factory=time.monotonic)
    progress: Progress | None = None


@dataclass
class LocalEngine(Engine):
    """Worker processes on this machine.

    One worker is used even for a single job: a cell that exhausts memory is then killed without the run.

    Attributes:
        jobs: cells computed at the same time.
        threads: CPU threads of each worker; by default the cores are shared evenly, see :func:`threads_of`.
    """

    jobs: int = 1
    threads: int = 0
    cell_timeout: float | None = None
    _workers: list[_Worker] = field(default_factory=list, repr=False)
    _lost_starting: int = 0
    _lost_reading: Counter[int] = field(default_factory=Counter, repr=False)
    """By the identity of a task: ready workers that died with it before they began it."""

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        check_timeout(self.cell_timeout)
        self.threads = self.threads or threads_of(self.jobs)

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        waiting = deque(tasks)
        self._lost_reading.clear()
        checked = time.monotonic()
        try:
            while waiting or any(worker.task for worker in self._workers):
                busy = sum(worker.task is not None for worker in self._workers)
                while len(self._workers) < min(self.jobs, busy + len(waiting)):
                    self._workers.append(self._start(runner))
                self._hand_out(waiting, listener)
                if not waiting and not any(worker.task for worker in self._workers):
                    break
                sources = wait([worker.connection for worker in self._workers], timeout=CHECK_SECONDS)
                for worker in [w for w in self._workers if w.connection in sources]:
                    self._hear(worker, waiting, listener)
                self._end_overdue(listener)
                if (now := time.monotonic()) - checked >= CHECK_SECONDS:
                    checked = now
                    listener.checked(self._running(now))
        finally:
            for worker in self._workers:
                worker.process.kill()  # not terminate: one that is stopped would never see it
                worker.connection.close()
            for worker in self._workers:
                worker.process.join()
                _clean(worker)
            self._workers.clear()

    def _start(self, runner: Runner) -> _Worker:
        for name, value in ALLOCATOR.items():  # glibc reads them when a process starts
            os.environ.setdefault(name, value)
        return _Worker(*start_child(serve, runner, self.threads, registry.loaded_files()))

    def _hand_out(self, waiting: deque[Task], listener: Listener) -> None:
        """Give every idle worker a task; those that another process has are dropped."""
        for worker in list(self._workers):
            if not worker.ready or worker.task is not None:
                continue
            while waiting and not listener.wanted(waiting[0]):
                waiting.popleft()
            if waiting:
                self._assign(worker, waiting, listener)

    def _assign(self, worker: _Worker, waiting: deque[Task], listener: Listener) -> None:
        task = waiting.popleft()
        worker.task, worker.began, worker.progress = task, None, None
        try:
            worker.connection.send(task)
        except OSError:  # it died while it had nothing to do
            self._replace(worker, waiting, listener)
        except Exception as error:  # nothing was sent
            worker.task = None
            listener.started(task)
            listener.finished(
                task,
                failed(
                    task, f"a cell must be picklable, to be sent to a worker process; pickling raised {explain(error)}"
                ),
            )

    def _hear(self, worker: _Worker, waiting: deque[Task], listener: Listener) -> None:
        try:
            message = worker.connection.recv()
        except Exception:  # the pipe is closed, or what came through it is cut off
            return self._lost(worker, waiting, listener)
        worker.heard = time.monotonic()
        task = worker.task
        if not worker.ready:
            worker.ready, self._lost_starting = True, 0
        elif task is None or isinstance(message, Alive):
            return None
        elif isinstance(message, Started):
            worker.began = worker.heard
            listener.started(task)
        elif isinstance(message, Progress):
            worker.progress = message
            listener.progressed(task, message)
        else:
            worker.task = None
            listener.finished(task, failed(task, message.reason) if isinstance(message, Failure) else message)
        return None

    def _lost(self, worker: _Worker, waiting: deque[Task], listener: Listener) -> None:
        """A worker died: the cell that it had begun has failed; a new worker takes its place."""
        if worker.task is None or worker.began is None:
            return self._replace(worker, waiting, listener)
        cause, doing = self._remove(worker), phase(worker.progress)
        reason = f"the worker process {cause} while {doing}"
        if worker.process.exitcode == -signal.SIGKILL:
            reason = f"{reason}; the system does so when memory runs out: {estimate(worker.task.cell.dataset)}"
        listener.finished(worker.task, failed(worker.task, reason))
        return None

    def _replace(self, worker: _Worker, waiting: deque[Task], listener: Listener) -> None:
        """A worker died before it began a cell: nothing is lost, another one does it, unless reading the cell is what
        ends them."""
        cause = self._remove(worker)
        if (task := worker.task) is not None:
            self._lost_reading[id(task)] += 1
            if self._lost_reading[id(task)] < START_TRIES:
                waiting.appendleft(task)
            else:
                listener.started(task)
                listener.finished(task, failed(task, _unreadable(cause)))
        self._lost_starting += not worker.ready
        if self._lost_starting >= START_TRIES:
            raise FglauditError(
                f"worker processes must be able to start; {START_TRIES} ended one after the other, the last one"
                f" {cause}; see its output above, or use fewer --jobs"
            )

    def _remove(self, worker: _Worker) -> str:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        _clean(worker)
        return _cause(worker.process.exitcode)

    def _end_overdue(self, listener: Listener) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            task, limit = worker.task, self.cell_timeout
            if task is None or limit is None or worker.began is None or now - worker.began <= limit:
                continue
            self._remove(worker)
            listener.finished(task, failed(task, too_long(limit, phase(worker.progress))))

    def _running(self, now: float) -> list[Running]:
        return [
            Running(worker.task, now - worker.began, now - worker.heard, worker.progress)
            for worker in self._workers
            if worker.task is not None and worker.began is not None
        ]


def _clean(worker: _Worker) -> None:
    """Remove the messages that a worker which was ended could not remove itself."""
    if worker.task is not None and worker.task.spool is not None:
        remove_tree(worker.task.spool)


def _unreadable(cause: str) -> str:
    return (
        f"a worker process must be able to read its cell; {START_TRIES} ended one after the other before they began"
        f" this one, the last one {cause}; see its output above: a plugin's module may end the process that imports it"
    )


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended with exit code {exitcode}"
    return f"was killed by {signal.Signals(-exitcode).name}"
