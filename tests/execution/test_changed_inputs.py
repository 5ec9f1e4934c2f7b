"""A file that changes while a run lasts stops the run with one message; what was finished before is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SUITE = """
name: small
datasets: [{name: npz, path: own.npz, split: random}]
partitions: [{scheme: dirichlet, clients: 2, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 1}]
defenses: [{name: "meddler.py:Meddler"}]
observers: [{parties: [server]}]
attacks: [server-partial-sums]
seeds: [0, 1, 2, 3]
"""
PLUGIN = '''
"""A defense that changes a file when its second cell begins."""
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from fglaudit.interfaces import Defense, DefenseSession

@dataclass(frozen=True)
class Meddler(Defense):
    name: ClassVar[str] = "meddler"

    def bind(self, context):
        begun = Path(__file__).with_name("begun")
        if begun.exists():
            victim = Path(__file__).with_name("VICTIM")
            victim.write_bytes(victim.read_bytes() + b"\\n")
        begun.touch()
        return DefenseSession()
'''


@pytest.mark.parametrize("victim", ["own.npz"])
def test_a_changed_file_stops_the_run(tmp_path: Path, victim: str) -> None:
    (tmp_path / "s.yaml").write_text(SUITE)
    (tmp_path / "meddler.py").write_text(PLUGIN.replace("VICTIM", victim))
    draw = np.random.default_rng(0)
    x, edges, y = (draw.random((30, 8)) < 0.3), draw.integers(0, 30, (2, 60)), draw.integers(0, 2, 30)
    np.savez(tmp_path / "own.npz", x=x.astype(np.float32), edge_index=edges, y=y)
    command = [sys.executable, "-m", "fglaudit", "run", "s.yaml", "--out", "out", "--device", "cpu", "--jobs", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "stays the same while a run lasts" in done.stderr and victim in done.stderr
    assert "Traceback" not in done.stderr
    finished = list((tmp_path / "out" / "cells").glob("*.json"))
    assert 1 <= len(finished) <= 2, "cells before the change are kept, cells behind it are not tried"
    assert (tmp_path / "out" / "findings.csv").exists()
