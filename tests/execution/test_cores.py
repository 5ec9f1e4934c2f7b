"""How many CPU threads a worker gets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fglaudit.execution.engines import cores
from fglaudit.execution.engines.local_engine import LocalEngine


@pytest.mark.parametrize(
    ("allowed", "jobs", "threads"),
    [(None, 1, 8), (None, 3, 2), (None, 20, 1), ("1", 1, 1), ("3", 2, 3), ("64", 2, 4), ("2,4", 1, 2), ("0", 2, 4)],
)
def test_an_even_share_of_the_cores_and_no_more_than_allowed(
    allowed: str | None, jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if allowed is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", allowed)
    assert cores.threads_of(jobs) == threads
    assert LocalEngine(jobs).threads == threads


COMMAND = """
import contextlib, os, sys
from fglaudit.__main__ import main
sys.argv[1:] = ["--version"]
with contextlib.suppress(SystemExit):
    main()
print("torch" in sys.modules, os.environ["OMP_WAIT_POLICY"])
import torch
"""


@pytest.mark.parametrize(("own", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_a_command_wait_asleep_unless_told_otherwise(own: str | None, policy: str) -> None:
    """They spun, and a command beside another program took 6 to 50 times its time. Set before torch is loaded, or
    never; GNU's OpenMP says how often its threads look before they sleep."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE"} | ({} if own is None else {"OMP_WAIT_POLICY": own})
    done = subprocess.run([sys.executable, "-c", COMMAND], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"False {policy}"
    looks = [line.split("=")[1].strip(" '") for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert all((count == "0") == (policy == "PASSIVE") for count in looks), looks
