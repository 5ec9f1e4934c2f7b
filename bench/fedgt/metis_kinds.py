"""``python -m bench.fedgt.metis_kinds``: edges that METIS cuts by recursive bisection and by its k-way scheme.

pymetis bisects for up to 8 parts and takes the k-way scheme above; the package that FedGT's code uses takes the k-way
scheme for any number. Largest component, as in FedGT's Table 6; mean and range over eight seeds.
"""

from __future__ import annotations

import argparse
import statistics

import pymetis

from fglaudit.nn.sparse import row_starts
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import all_published

SEEDS = range(8)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.metis_kinds", description=__doc__)
    parser.add_argument("--clients", default="5", help="5, 10 or 20")
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    for row in all_published():
        if (row.table, row.clients) != ("fedgt-table6", options.clients) or row.dataset not in fedgt_methods.SETTINGS:
            continue
        graph = fedgt.split_of(row, options.root)[0].load()
        sender, receiver = graph.edge_index
        adjacency = pymetis.CSRAdjacency(row_starts(sender, graph.num_nodes).int().numpy(), receiver.int().numpy())
        found = []
        for bisecting in (True, False):
            cuts = [
                pymetis.part_graph(
                    int(row.clients), adjacency, recursive=bisecting, options=pymetis.Options(seed=seed)
                ).edge_cuts
                for seed in SEEDS
            ]
            found.append(f"{statistics.fmean(cuts):.0f} ({min(cuts)} to {max(cuts)})")
        print(f"{row.label}: printed {row.mean:g}; bisection {found[0]}, k-way {found[1]}", flush=True)


if __name__ == "__main__":
    main()
