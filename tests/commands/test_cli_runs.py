"""Whole runs through the command line in a process of their own: killed, interrupted, with a failing plugin of the
user's."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 80, edges: 160, dimensions: 30}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 60}]
defenses: [none, {name: "touchy.py:Touchy"}]
observers: [{parties: [server]}, {parties: ["client:each"]}]
attacks: [row-space]
seeds: [0, 1, 2]
"""
PLUGIN = '''
"""A user's defense."""
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession

@dataclass(frozen=True)
class Touchy(Defense):
    """Fails while a file `fail` lies beside it."""
    name: ClassVar[str] = "touchy"

    def bind(self, context: Context) -> DefenseSession:
        if Path(__file__).with_name("fail").exists():
            raise ValueError("touched")
        return DefenseSession()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SUITE)
    (tmp_path / "touchy.py").write_text(PLUGIN)
    return tmp_path


def start(folder: Path, out: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fglaudit", "run", "small.yaml", "--out", out, "--device", "cpu", "--jobs", "2"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=240)
    return process.returncode, out, error


def until_first_record(process: subprocess.Popen[str], out: Path) -> None:
    while not list((out / "cells").glob("*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def rows(out: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in ("findings.csv", "coverage.csv"):
        with (out / name).open(newline="") as file:
            found += csv.DictReader(file)
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in found]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").exists() or Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def children(process: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{process}/task").glob("*/children") for child in task.read_text().split()
    ]


def test_a_killed_run_continues_to_the_findings_of_an_uninterrupted_one(folder: Path) -> None:
    status, out, error = finish(start(folder, "whole"))
    assert (status, error) == (0, ""), error
    assert "Who learns what" in out and "whole/report.html" in out
    for name in ("report.html", "report.md", "summary.csv", "suite.yaml", "run.json"):
        assert (folder / "whole" / name).stat().st_size > 0

    killed = start(folder, "killed")
    until_first_record(killed, folder / "killed")
    workers = children(killed.pid)
    killed.send_signal(signal.SIGKILL)
    finish(killed)
    done = len(list((folder / "killed" / "cells").glob("*.json")))
    assert 1 <= done < 6, "the run was over before it was killed: raise rounds"
    deadline = time.monotonic() + 20
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)

    status, out, error = finish(start(folder, "killed"))
    assert (status, error) == (0, ""), error
    assert f"{done} of 6 cells {'is' if done == 1 else 'are'} finished already" in out
    assert rows(folder / "killed") == rows(folder / "whole")
    assert {row["status"] for row in rows(folder / "whole")} <= {"ok", "not-applicable", "broken-attack"}


def test_ctrl_c_keeps_finished_cells(folder: Path) -> None:
    process = start(folder, "stopped")
    until_first_record(process, folder / "stopped")
    process.send_signal(signal.SIGINT)
    status, _, error = finish(process)
    assert status == 130 and "continue with: fglaudit run small.yaml --out stopped" in error
    assert "Traceback" not in error
    states = {row["reason"].partition(":")[0] for row in rows(folder / "stopped") if row["status"] == "failed"}
    assert states == {"not run"}


def test_a_failing_cell_is_a_row_and_the_exit_code_says_so(folder: Path) -> None:
    (folder / "fail").touch()
    status, out, error = finish(start(folder, "run"))
    assert status == 1 and "3 of 6 cells have failed rows" in error
    assert "ValueError: touched" in out
    found = rows(folder / "run")
    reasons = [row["reason"] for row in found if row["defense"] == "touchy"]
    assert reasons == ["ValueError: touched (touchy.py line 16)"] * 6
    kept = [path.read_text() for path in (folder / "run" / "errors").iterdir()]
    assert len(kept) == 3 and all("Traceback" in text and 'raise ValueError("touched")' in text for text in kept)
    assert all(row["status"] != "failed" for row in found if row["defense"] == "none")
    (folder / "fail").unlink()
    status, out, _ = finish(start(folder, "run"))
    assert status == 0 and "3 of 6 cells are finished already" in out
    assert not list((folder / "run" / "errors").iterdir())
    (folder / "touchy.py").write_text(PLUGIN.replace("touched", "hurt"))
    status, _, error = finish(start(folder, "run"))
    assert status == 2 and "earlier text of" in error and "touchy.py" in error
