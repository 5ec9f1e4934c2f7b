"""FedGT's Table 10: time per client for personalised PageRank and positional encoding, mean over clients, not
overlapping.

Measured is the CPU time of the process, which with one thread (``--threads 1``) is at least what a clock shows on a
machine that does nothing else; the paper prints seconds by the clock on its server.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from bench.fedgt_tables import CLIENTS, DATASETS, FIRST_SEED, Case, federated
from fglaudit.graph import FederatedGraph
from fglaudit.nn.laplacian import laplacian_encoding
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.neighbor_sampling import find_candidates
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

PUBLISHED = {
    "cora": (0.24, 0.07, 0.03),
    "citeseer": (0.17, 0.08, 0.02),
    "pubmed": (5.36, 2.17, 0.76),
    "computers": (3.94, 1.43, 0.16),
    "photo": (6.31, 1.52, 0.39),
}
"""Seconds per client that Table 10 prints, by clients as in ``CLIENTS``."""

KEY = ("dataset", "clients")
VALUES = ("nodes", "cpu_seconds")


def run(results: Path, root: str | None) -> None:
    """Measure what is missing in ``results/fedgt_preprocessing.csv``, then print it beside Table 10."""
    table = Table(results / "fedgt_preprocessing.csv", KEY, VALUES)
    for dataset in DATASETS:
        for clients in CLIENTS["non-overlapping"]:
            key = {"dataset": dataset, "clients": clients}
            if not table.has(key):
                graph = federated(Case(dataset, "non-overlapping", clients, "fedgt", FIRST_SEED), root)
                table.add({**key, "nodes": graph.num_nodes, "cpu_seconds": f"{seconds(graph):.4f}"})
    print(f"{'data':9} {'clients':>7} {'CPU s / client':>14} {'paper, s':>8}")
    for row in table.rows():
        clients = int(row["clients"])
        paper = PUBLISHED[row["dataset"]][CLIENTS["non-overlapping"].index(clients)]
        print(f"{row['dataset']:9} {clients:7} {float(row['cpu_seconds']):14.3f} {paper:8.2f}")


def seconds(graph: FederatedGraph) -> float:
    """Return the mean CPU seconds per client, with FedGT's defaults."""
    settings = FedGT()
    clients = [graph.client(k) for k in range(graph.num_clients)]
    torch.linalg.inv(torch.eye(64))  # the first call loads the library
    start = time.process_time()
    for client in clients:
        laplacian_encoding(client.edge_index, len(client.nodes), settings.encoding)
    find_candidates(clients, settings.sampling, settings.candidates, settings.restart, derive(0))
    return (time.process_time() - start) / len(clients)
