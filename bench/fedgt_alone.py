"""``python -m bench.fedgt_alone``: what a client of FedGT's Tables 1 and 2 reaches alone without learning anything.

Two rules beside the printed figure of "Local": every test node has the most frequent class of the client's own training
nodes, or the class that the labels of these nodes give when they are propagated over the client's own subgraph
(``Z <- 0.9 D^-1 A Z + 0.1 Y``, 30 steps; features are not read). Partitions and splits are those of the tables,
accuracies in percent, mean over clients; mean and range over the seeds.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.graph import ClientGraph
from fglaudit.reproduce import fedgt
from fglaudit.reproduce.published import all_published

STEPS, KEPT = 30, 0.1
"""Of the propagation, and the share of a training node's own label."""


def guesses(client: ClientGraph, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the most frequent class (a scalar) and the propagated labels [n] of one client."""
    labels = functional.one_hot(client.y.clamp(min=0), num_classes).float() * client.train.unsqueeze(1)
    counts = labels.sum(0)
    row, column = client.edge_index
    share = torch.bincount(row, minlength=len(client.nodes)).clamp(min=1).float().reciprocal()[row]
    spread = labels
    for _ in range(STEPS):
        sums = torch.zeros_like(labels).index_add_(0, row, share.unsqueeze(1) * spread[column])
        spread = (1 - KEPT) * sums + KEPT * labels
    return counts.argmax(), (spread + 1e-6 * counts).argmax(1)  # a node that no label reaches has the frequent class


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt_alone", description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"], choices=list(fedgt.SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    for printed in all_published():
        if printed.method != "Local" or printed.dataset not in options.datasets:
            continue
        if printed.table not in ("fedgt-table1", "fedgt-table2"):
            continue
        found: list[tuple[float, float]] = []
        for seed in range(fedgt.SEEDS[0], fedgt.SEEDS[0] + options.seeds):
            graph = fedgt.federated(printed.dataset, printed.setting, int(printed.clients), seed, options.root)
            clients = [graph.client(k) for k in range(graph.num_clients)]
            right = []
            for client in clients:
                frequent, spread = guesses(client, graph.num_classes)
                mine = client.y[client.test]
                right.append([(mine == frequent).float().mean(), (mine == spread[client.test]).float().mean()])
            frequent_rate, spread_rate = (100 * torch.tensor(right).mean(0)).tolist()
            found.append((frequent_rate, spread_rate))
        columns = [
            f"{name} {statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})"
            for name, values in zip(("frequent class", "own labels propagated"), zip(*found, strict=True), strict=True)
        ]
        print(f"{printed.label}: printed {printed.mean:g}; {'; '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
