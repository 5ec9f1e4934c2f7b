"""``python -m bench [NAME ...]``: run long measurements; stopped ones go on where they were."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from bench import fedgat_attacks, fedgat_table1, fedgat_theory, fedgcn_table2, fedgt_attacks, fedgt_tables, scale

NAMES = ("table2", "scale", "fedgat", "fedgat-attacks", "theory", "fedgt", "fedgt-attacks")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: all)")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="folder of the CSV files")
    parser.add_argument("--root", help="folder of the raw data sets (default: $FGLAUDIT_DATA or ../shared/data)")
    parser.add_argument("--threads", type=int, help="threads per operation (default: torch's)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--features", choices=("raw", "row-normalised"), default="raw")
    parser.add_argument("--nodes", type=int, default=2_400_000)
    parser.add_argument("--edges", type=int, default=60_000_000, help="undirected edges of the scale graph")
    parser.add_argument("--clients", type=int, default=10, help="clients of the scale graph")
    parser.add_argument("--datasets", nargs="+", choices=fedgt_tables.DATASETS, default=fedgt_tables.DATASETS, help="of fedgt")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown measurement {sorted(unknown)[0]!r} (known: {', '.join(NAMES)})")
    if options.threads:
        torch.set_num_threads(options.threads)
    if "table2" in options.names or not options.names:
        fedgcn_table2.run(options.results, options.root, options.seeds, options.features)
    if "fedgat" in options.names or not options.names:
        fedgat_table1.run(options.results, options.root, options.seeds)
    if "fedgat-attacks" in options.names or not options.names:
        fedgat_attacks.run(options.results, options.root)
    if "theory" in options.names or not options.names:
        fedgat_theory.run(options.results, options.root)
    if "fedgt" in options.names or not options.names:
        fedgt_tables.run(options.results, options.root, min(options.seeds, 3), options.datasets)
    if "fedgt-attacks" in options.names or not options.names:
        fedgt_attacks.run(options.results, options.root, min(options.seeds, 3))
    if "scale" in options.names or not options.names:
        scale.run(options.results, options.nodes, options.edges, 100, options.clients)


if __name__ == "__main__":
    main()
