"""Kills: a run whose main process, workers (starting, idle, busy) or the child that looks at the data first get a
signal at a random moment, and is then continued, ends in the findings of a run that was left alone, and leaves no
messages lying."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from bench.fuzz.campaign import Tally
from bench.fuzz.runs import SUITE
from bench.fuzz.server import Outcome

ROUNDS = 150
LIMIT = 600.0
LOOKING = 4.0
"""Seconds within which the child that looks at the data is killed: it imports torch and reads one file."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _start(folder: Path, out: str) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); from fglaudit.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", "suite.yaml", "--out", out, "--device", "cpu", "--jobs", "2"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)],
    )


def _children(process: int) -> list[int]:
    """Return the processes that it spawned: the one that looks at the data or, after that, the workers; not
    multiprocessing's resource tracker."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        except OSError:
            continue
    return found


def _rows(out: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in ("findings.csv", "coverage.csv"):
        with (out / name).open(newline="") as file:
            found += csv.DictReader(file)
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in found]


def _case(rng: random.Random, folder: Path, out: str, seconds: float, expected: list[dict[str, str]]) -> str:
    """Kill once, continue, and return what is wrong; nothing if all is well."""
    process = _start(folder, out)
    target = rng.choice(("main", "worker", "child"))
    if target == "child":
        while not _children(process.pid) and process.poll() is None:
            time.sleep(0.01)
    time.sleep(rng.uniform(0, LOOKING if target == "child" else seconds))
    number = rng.choice(SIGNALS) if target == "main" else signal.SIGKILL
    victims = [process.pid] if target == "main" else _children(process.pid)
    if victims and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(victims), number)
    _, errors = process.communicate(timeout=LIMIT)
    if "Traceback" in errors:
        return f"{target}, {number!r}: {errors[-3000:]}"
    if number != signal.SIGKILL and (folder / out / ".spool").exists():
        return f"{target}, {number!r}: messages were left lying"
    for _ in range(2):
        process = _start(folder, out)
        _, errors = process.communicate(timeout=LIMIT)
        if "Traceback" in errors or process.returncode not in (0, 1):
            return f"continued after {target}, {number!r}: exit code {process.returncode}: {errors[-3000:]}"
        if process.returncode == 0:
            break
    if (folder / out / ".spool").exists():
        return f"continued after {target}, {number!r}: messages were left lying"
    return "" if _rows(folder / out) == expected else f"continued after {target}, {number!r}: other findings"


def _own_graph(path: Path, rng: np.random.Generator) -> None:
    """Write a graph of one's own that is large enough to be looked at in a child."""
    nodes, words = 60, 4000
    pairs = rng.integers(0, nodes, (2, 120))
    part = np.arange(nodes) % 3
    np.savez(
        path,
        x=rng.random((nodes, words), np.float32),
        y=np.arange(nodes) % 4,
        edge_index=np.concatenate([pairs, pairs[::-1]], 1)[:, np.concatenate([pairs[0] != pairs[1]] * 2)],
        **{f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))},
    )


def killed(seed: int, cases: int) -> Tally:
    """Kill ``cases`` runs."""
    tally = Tally()
    if not cases:
        return tally
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        _own_graph(folder / "own.npz", np.random.default_rng(seed))
        protocols = [{**SUITE["protocols"][0], "rounds": ROUNDS}]  # type: ignore[dict-item]
        datasets = [*SUITE["datasets"], {"name": "npz", "path": "own.npz"}]
        suite = {**SUITE, "datasets": datasets, "protocols": protocols, "record": "needed"}
        (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
        start = time.monotonic()
        whole = _start(folder, "whole")
        _, errors = whole.communicate(timeout=LIMIT)
        assert whole.returncode == 0, errors
        seconds = time.monotonic() - start
        expected = _rows(folder / "whole")
        for number in range(cases):
            begin = time.monotonic()
            try:
                wrong = _case(random.Random(f"kill {seed} {number}"), folder, f"out-{number}", seconds, expected)
            except subprocess.TimeoutExpired as error:
                wrong = f"hangs: {error}"
            tally.add(number, Outcome("wrong" if wrong else "equal", wrong, time.monotonic() - begin))
            print(f"  kill {number}: {wrong or 'equal'}"[:300], flush=True)
    return tally
