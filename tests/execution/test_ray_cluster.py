"""Ray itself, as a cluster of two machines on this one: one of them is lost in the middle of a run."""

from __future__ import annotations

import csv
import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from execution_runs import InlineEngine, suite
from rich.console import Console

from fglaudit.execution.engines.engine import Engine
from fglaudit.execution.engines.ray_engine import RayEngine
from fglaudit.run import run_suite

pytestmark = pytest.mark.foreign
SECONDS = 300.0
SLOW: dict[str, Any] = {"protocols": [{"name": "fedgcn", "hops": 1, "rounds": 400}], "seeds": list(range(6))}


def findings(folder: Path, engine: Engine) -> list[dict[str, str]]:
    """Run, and return all rows without their times."""
    run_suite(suite(**SLOW), folder, engine, "cpu", Console(file=io.StringIO()))
    rows: list[dict[str, str]] = []
    for name in ("findings.csv", "coverage.csv"):
        with (folder / name).open(newline="") as file:
            rows += [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in csv.DictReader(file)]
    return rows


def test_cells_of_a_lost_machine_are_computed_on_another(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fglaudit[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    machines = [cluster.add_node(num_cpus=1) for _ in range(2)]
    lost_after: list[int] = []

    def records() -> int:
        return len(list((tmp_path / "ray" / "cells").glob("*.json")))

    def lose() -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not records():
            time.sleep(0.05)
        lost_after.append(records())
        cluster.remove_node(machines[0], allow_graceful=False)

    losing = threading.Thread(target=lose, daemon=True)
    try:
        losing.start()
        found = findings(tmp_path / "ray", RayEngine(address=cluster.address, jobs=2))
    finally:
        losing.join(SECONDS)
        cluster.shutdown()
    assert lost_after and 0 < lost_after[0] < len(SLOW["seeds"]), "the machine was not lost in the middle of the run"
    assert found == findings(tmp_path / "here", InlineEngine())
