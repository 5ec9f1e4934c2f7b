"""A fuzzing campaign: so many cases of each kind, each from a seed of its own that is printed with a fault."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.fuzz import graphs, suites
from bench.fuzz.server import WAIT_SECONDS, Outcome, judge, preload, run


@dataclass(frozen=True)
class Kind:
    """One kind of input: how a mutated one is made, what is done with it, and by which command a user would do it."""

    name: str
    suffix: str
    mutated: Callable[[random.Random], bytes]
    check: Callable[[Path], None]
    command: tuple[str, ...]

    def write(self, seed: int, number: int, folder: Path) -> Path:
        """Write case ``number`` of ``seed`` into ``folder``; equal numbers give equal files."""
        path = folder / f"{self.name}-{seed}-{number}{self.suffix}"
        path.write_bytes(self.mutated(random.Random(f"{self.name} {seed} {number}")))
        return path


KINDS = {
    "suite": Kind("suite", ".yaml", suites.mutated, suites.check, ("run", "{}", "--dry-run", "--quick")),
    "graph": Kind("graph", ".npz", graphs.mutated, graphs.check, ("data", "facts", "{}")),
}


@dataclass
class Tally:
    """Counts by outcome, and the faults with the numbers of their cases."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Outcome]] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, number: int, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        if outcome.fault:
            self.faults.append((number, outcome))


def forked(kind: Kind, seed: int, cases: int, seconds: float = float("inf"), first: int = 0) -> Tally:
    """Run up to ``cases`` cases for at most ``seconds`` in forked children."""
    preload()
    tally, start = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(first, first + cases):
            path = kind.write(seed, number, Path(folder))
            tally.add(number, run(partial(kind.check, path)))
            if (number + 1 - first) % 100 == 0:
                print(f"  {kind.name}s: {number + 1 - first} done, {len(tally.faults)} faults", flush=True)
            path.unlink()
            if time.monotonic() - start > seconds:
                break
    return tally


def commanded(kind: Kind, seed: int, cases: int) -> Tally:
    """Run ``cases`` cases by the real command, in processes of their own."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(cases):
            path = kind.write(seed, number, Path(folder))
            tally.add(number, _command([word.format(path) for word in kind.command], folder))
            path.unlink()
    return tally


def _command(words: list[str], folder: str) -> Outcome:
    start = time.monotonic()
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); from fglaudit.cli import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WAIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome("hang", " ".join(words), time.monotonic() - start)
    seconds = time.monotonic() - start
    if "Traceback (most recent call last)" in done.stderr or done.returncode not in (0, 2):
        return Outcome("traceback", f"exit code {done.returncode}: {done.stderr[-5000:]}", seconds)
    if done.returncode == 0:
        return Outcome("accepted", "", seconds)
    message = done.stderr.strip().removeprefix("error: ")
    return Outcome(judge(message), message, seconds)
