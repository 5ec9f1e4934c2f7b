"""Print medians over several runs, each in a fresh process; imports and data loading are not timed."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--root", default=os.environ.get("FGLAUDIT_DATA", "../shared/data"), help="raw data sets")
    parser.add_argument("--device", default="cpu", help="to train on, e.g. cuda")
    options = parser.parse_args()
    dataset = "cora" if Path(options.root).is_dir() else "csbm-cora"
    print(
        f"FedGCN, {dataset}, 10 clients, 300 rounds x 3 local steps, accuracy every round, {options.threads} threads,"
        f" on {options.device}"
    )
    for hops in (0, 1, 2):
        command = [
            sys.executable,
            "-m",
            "bench.speed.fedgcn_speed",
            dataset,
            options.root,
            str(hops),
            str(options.threads),
            options.device,
        ]
        runs = []
        for _ in range(options.runs):
            finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            seconds, cpu, gigabytes = finished.stdout.split()
            runs.append((float(seconds), float(cpu), float(gigabytes)))
        times, cpus, memory = zip(*runs, strict=True)
        print(
            f"{hops} hops: median {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f}), "
            f"CPU {statistics.median(cpus):.2f} s, "
            f"peak memory {statistics.median(memory):.2f} GB, {options.runs} runs",
            flush=True,
        )


if __name__ == "__main__":
    main()
