"""Mutated run folders: a sound run whose files are cut, flipped, forged, swapped, replaced by folders and links, or
removed. Its report and its continuation must end in the findings of the sound run, or in one message; a row that says
what is missing may stand in a report, another figure may not.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.fuzz.campaign import Tally
from bench.fuzz.server import preload, run
from fglaudit.errors import FglauditError
from fglaudit.execution.engines.engine import Engine, Listener, failed
from fglaudit.execution.engines.worker import Failure, Runner, Task, compute
from fglaudit.execution.folder.stored_run import read_records
from fglaudit.files.own import stamped
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.run import run_suite, write_outputs
from fglaudit.suite.suite import Suite, resolve

SUITE = {
    "name": "sound",
    "datasets": [{"name": "csbm", "csbm": {"nodes": 60, "edges": 120, "dimensions": 20}}],
    "partitions": [{"scheme": "dirichlet", "clients": 3, "beta": 10000}],
    "protocols": [{"name": "fedgcn", "hops": 1, "rounds": 2}],
    "observers": [{"parties": ["server"]}, {"parties": ["client:each"]}],
    "attacks": ["row-space"],
    "seeds": [0, 1, 2],
    "record": "all",
}
WORDS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    73.5,
    1e400,
    "NaN",
    "",
    "../../x",
    [],
    {},
    [[]],
    "x" * 5000,
    2**70,
    {"a": None},
)


class Here(Engine):
    """Computes in this process."""

    def run(self, tasks: Sequence[Task], runner: Runner, listener: Listener) -> None:
        for task in tasks:
            listener.started(task)
            outcome = compute(task, runner, lambda progress: None)
            listener.finished(task, failed(task, outcome.reason) if isinstance(outcome, Failure) else outcome)


@functools.cache
def suite() -> Suite:
    return resolve(SUITE, "sound")


def continued(folder: Path) -> list[CellRecord]:
    """Run, or continue, the suite in ``folder``."""
    return run_suite(suite(), folder, Here(), "cpu", Console(file=io.StringIO()))


def mutate(rng: random.Random, folder: Path) -> None:
    """Change one to three things below ``folder``."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        path = rng.choice(files)
        rng.choice((_cut, _flip, _flip, _forge, _forge, _swap, _remove, _folder, _link, _foreign))(rng, path, files)


def _cut(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _flip(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _forge(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    """Replace a value by one of another type or range, under a right digest."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        return _flip(rng, path, files)
    data.pop("digest", None)
    spots: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            spots.append((value, key))
            walk(value[key])

    walk(data)
    holder, key = rng.choice(spots)
    new = rng.choice(WORDS)
    if path.parent.name == "cells" and type(new) is type(holder[key]):
        new = None  # a possible figure under a right digest is a forgery that nobody can notice
    holder[key] = new
    path.write_text(stamped(data, path.name))
    return None


def _swap(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    other = rng.choice(files)
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def _remove(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    path.unlink()


def _folder(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    path.unlink()
    path.mkdir()


def _link(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/nowhere", "..", str(rng.choice(files)))))


def _foreign(rng: random.Random, path: Path, files: Sequence[Path]) -> None:
    (path.parent / rng.choice(("notes.txt", ".x.tmp", "0" * 16 + ".json", "[bold].json"))).write_text("mine")


def figures(records: Sequence[CellRecord]) -> dict[tuple[str, str, str], Finding]:
    """Return the findings by cell, observer and attack, without seconds."""
    return {
        (f.cell, f.observer, f.attack): dataclasses.replace(f, seconds_train=None, seconds_attack=None)
        for record in records
        for f in record.findings
    }


def check(folder: Path, sound: dict[tuple[str, str, str], Finding]) -> None:
    """Report and continue a mutated run; raises AssertionError where a figure changed or a foreign file was touched."""
    foreign = {p: p.read_text() for p in folder.rglob("*") if p.name in ("notes.txt", ".x.tmp", "[bold].json")}
    try:
        write_outputs(folder)
        said = figures(read_records(folder))
    except FglauditError:
        said = {}
    for key, row in said.items():
        assert row.status is Status.FAILED or row == sound.get(key), f"the report says {row}, not {sound.get(key)}"
    try:
        now = figures(continued(folder))
        other = [now.get(key) for key in sound if now.get(key) != sound[key]]
        assert now == sound, f"continued to other findings: {other}"
    finally:
        assert all(path.is_file() and path.read_text() == text for path, text in foreign.items()), "a foreign file"
        assert not (folder / ".spool").exists(), "messages were left lying"


def mutated_runs(seed: int, cases: int, seconds: float = float("inf"), first: int = 0) -> Tally:
    """Mutate ``cases`` copies of one run, each in a forked child."""
    preload()
    tally, start = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        whole = Path(name) / "sound"
        sound = figures(continued(whole))
        assert all(row.status is not Status.FAILED for row in sound.values())
        for number in range(first, first + cases):
            folder = Path(name) / f"run-{number}"
            shutil.copytree(whole, folder)
            mutate(random.Random(f"run {seed} {number}"), folder)
            tally.add(number, run(functools.partial(check, folder, sound)))
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() - start > seconds:
                break
    return tally
