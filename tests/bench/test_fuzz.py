"""A sample of ``make fuzz`` in about 30 seconds; the seed is fixed, so that it cannot flicker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fuzz import server
from bench.fuzz.server import judge, run
from fglaudit.errors import FglauditError


@pytest.mark.fuzz
def test_a_sample_of_mutated_suites_and_graphs_ends_in_values_or_messages() -> None:
    command = [sys.executable, "-m", "bench.fuzz", "--seed", "21", "--seconds", "8", "--real", "1", "--kills", "1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = {kind: int(n) for kind, n in re.findall(r"(suite|graph)s, forked: .*?(\d+) refused", done.stdout)}
    assert re.search(r"runs, forked: \d+ accepted", done.stdout), done.stdout
    assert set(refused) == {"suite", "graph"} and min(refused.values()) > 0, done.stdout


def test_the_server_tells_faults_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANG_SECONDS", 1)

    def hangs_up() -> None:
        os._exit(3)

    def refuses() -> None:
        raise FglauditError("a number must be small; got 5; lower it")

    def grumbles() -> None:
        raise FglauditError("no")

    def loops() -> None:
        while True:
            pass

    def writes_a_traceback() -> None:
        sys.stderr.write("Traceback (most recent call last):\n")

    def fails() -> None:
        raise IndexError

    assert run(lambda: None).kind == "accepted"
    assert run(refuses).kind == "refused"
    assert run(grumbles).kind == "message" and run(grumbles).fault
    assert run(loops).kind == "hang"
    assert run(fails).kind == "traceback"
    assert run(hangs_up).kind == "crash"
    assert run(writes_a_traceback).kind == "traceback"


def test_what_counts_as_a_message() -> None:
    assert judge("a number must be small; got 5; lower it") == "refused"
    assert judge("two lines must not be; got\n5; join them") == "message"
    assert judge("x" * 100_000 + "; y; z") == "message"
