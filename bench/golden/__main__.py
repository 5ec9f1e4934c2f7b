"""``python -m bench.golden OUT [--against OLD]``: small versions of the suites, run twice to show that a change changed
no result.

Run it before a change and after it, on one machine with one version of the package. Every column of ``findings.csv``
but the seconds must be equal, character by character. One suite at a time uses one core (``--jobs 1``, one thread); two
suites run side by side where there are cores for them.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUITES = Path(__file__).parent
FREE = ("seconds_train", "seconds_attack")
"""Columns that may differ."""


def run(suite: Path, out: Path, core: int) -> None:
    """Run one suite on one core; failed cells are part of the result."""
    command = [sys.executable, "-m", "fglaudit", "run", str(suite), "--out", str(out / suite.stem), "--jobs", "1"]
    done = subprocess.run(
        ["taskset", "-c", str(core), *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{suite.name}: exit code {done.returncode}\n{done.stderr}")
    print(f"{suite.stem}: exit code {done.returncode}", flush=True)


def rows(folder: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the findings of a run by cell, observer and attack, without the columns that may differ."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for file in ("findings.csv", "coverage.csv"):
        if not (folder / file).is_file():
            continue
        for row in csv.DictReader((folder / file).read_text("utf-8").splitlines()):
            key = tuple(row[name] for name in ("cell", "observer", "observer_knowledge", "attack"))
            found[key] = {name: value for name, value in row.items() if name not in FREE}
    return found


def differences(new: Path, old: Path) -> list[str]:
    """Return one line per value that differs between two runs of one suite."""
    ours, theirs = rows(new), rows(old)
    lines = [f"{' '.join(key)}: only in {new if key in ours else old}" for key in sorted(ours.keys() ^ theirs.keys())]
    for key in sorted(ours.keys() & theirs.keys()):
        row = ours[key]
        name = " ".join([row["protocol"], row["protocol_args"], row["defense"], row["defense_args"], *key[1:]])
        lines += [
            f"{name}: {column}: {value!r} was {theirs[key].get(column)!r}"
            for column, value in row.items()
            if column in theirs[key] and value != theirs[key][column]
        ]
        lines += [f"{name}: {column} is missing" for column in theirs[key] if column not in row]
    return lines


def main() -> None:
    """Parse the command line, run the suites, compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.golden", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the runs; finished cells in it are kept")
    parser.add_argument("--against", type=Path, help="folder of an earlier call")
    parser.add_argument("--only", nargs="*", help="names of suites (default: all)")
    options = parser.parse_args()
    suites = sorted(path for path in SUITES.glob("*.yaml") if not options.only or path.stem in options.only)
    cores = sorted(os.sched_getaffinity(0))
    free = list(cores)

    def one(suite: Path) -> None:
        core = free.pop()
        try:
            run(suite, options.out, core)
        finally:
            free.append(core)

    with ThreadPoolExecutor(len(cores)) as pool:
        list(pool.map(one, suites))
    if options.against is None:
        return
    lines = [line for suite in suites for line in differences(options.out / suite.stem, options.against / suite.stem)]
    print("\n".join(lines) or "equal")
    raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
