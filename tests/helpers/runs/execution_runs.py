"""A small suite and how tests run it: in this process, or in workers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness_runners import measure
from rich.console import Console

from fglaudit.execution.engines.engine import Engine, Listener, failed
from fglaudit.execution.engines.local_engine import LocalEngine
from fglaudit.execution.engines.worker import Failure, Progress, Runner, Task, compute
from fglaudit.execution.folder.shards import Shard
from fglaudit.finding import CellRecord
from fglaudit.run import run_suite
from fglaudit.suite.suite import Suite, resolve


def suite(**changes: Any) -> Suite:
    data = {
        "name": "small",
        "datasets": [{"name": "csbm", "csbm": {"nodes": 60, "edges": 120, "dimensions": 20}}],
        "partitions": [{"scheme": "dirichlet", "clients": 3, "beta": 10000}],
        "protocols": [{"name": "fedgcn", "hops": 1, "rounds": 2}],
        "observers": [{"parties": ["server"]}, {"parties": ["client:each"]}],
        "seeds": [0, 6],
    }
    return resolve({**data, **changes}, "small")


class InlineEngine(Engine):
    """Computes in this process: starting workers takes seconds and most tests here are not about them."""

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        for task in filter(listener.wanted, tasks):
            listener.started(task)

            def heard(progress: Progress, task: Task = task) -> None:
                listener.progressed(task, progress)

            outcome = compute(task, runner, heard)
            listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)


def run(
    what: Suite, folder: Path, runner: Runner = measure, jobs: int = 0, shard: Shard | None = None
) -> tuple[list[CellRecord], str]:
    """Run ``what``, or a shard of it, in this process, or in ``jobs`` worker processes, with ``runner`` for what
    computes a cell."""
    out = io.StringIO()
    console = Console(file=out, width=300)
    engine = LocalEngine(jobs) if jobs else InlineEngine()
    with patch("fglaudit.run.run_cell", runner):
        records = run_suite(what, folder, engine, "cpu", console, shard=shard)
    return records, out.getvalue()
