"""``make fuzz``: 1,000 mutated suites, 500 mutated graphs and 500 mutated run folders in forked children, 30 suites and
graphs by the real command, and 50 runs that are killed at a random moment.

It lies under ``bench/`` as it takes minutes; ``tests/bench/test_fuzz.py`` runs a sample of it. The seed is printed;
``python -m bench.fuzz --seed S --only suite --first N --suites 1 --real 0`` repeats case N alone.
Exit code 1 if anything ended in a traceback, a crash, a hang above 20 s, a wrong value, or a message without rule and
fix.
"""

from __future__ import annotations

import argparse
import sys
import time

from bench.fuzz.campaign import KINDS, Tally, commanded, forked
from bench.fuzz.kills import killed
from bench.fuzz.runs import mutated_runs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--suites", type=int, default=1000)
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--real", type=int, default=30, help="cases of each kind by the real command")
    parser.add_argument("--only", choices=(*KINDS, "run", "kill"), help="one kind of input")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each kind in forked children")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    faults = 0
    for name, cases in (("suite", chosen.suites), ("graph", chosen.graphs)):
        if chosen.only in (None, name):
            faults += show(f"{name}s, forked", forked(KINDS[name], chosen.seed, cases, chosen.seconds, chosen.first))
            faults += show(f"{name}s, real command", commanded(KINDS[name], chosen.seed, min(chosen.real, cases)))
    if chosen.only in (None, "run"):
        faults += show("runs, forked", mutated_runs(chosen.seed, chosen.runs, chosen.seconds, chosen.first))
    if chosen.only in (None, "kill"):
        faults += show("kills, real command", killed(chosen.seed, chosen.kills))
    return 1 if faults else 0


def show(title: str, tally: Tally) -> int:
    """Print a tally; return its number of faults."""
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(tally.counts.items()))
    print(f"{title}: {counts or 'none'}; slowest {tally.slowest:.1f} s", flush=True)
    for number, outcome in tally.faults:
        print(f"  case {number}: {outcome.kind} after {outcome.seconds:.1f} s\n{outcome.text}", flush=True)
    return len(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
