"""FedGCN's Table 2 on Cora and CiteSeer: 10 clients, 300 rounds of 3 local steps, accuracy at the last round.

Settings of the paper's appendix E.2; what it does not say was chosen once for all rows: raw features (row-normalised
ones do not train with SGD at learning rate 0.5: ``--features row-normalised`` shows it), weight decay 5e-4 on every
layer, equal weights in the average. ``accuracy`` is the paper's: the global model tested by every client on its own
test nodes, mean over clients; ``accuracy_global`` is over the whole test set.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from bench import published_one_hop
from bench.table import Table
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import DefenseSession, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.local_gcn import LocalGCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

PUBLISHED = {
    ("cora", "1", "fedgcn-0"): 65.02,
    ("cora", "1", "fedgcn-1"): 81.00,
    ("cora", "1", "fedgcn-2"): 80.64,
    ("cora", "10000", "fedgcn-0"): 59.92,
    ("cora", "10000", "fedgcn-1"): 80.09,
    ("cora", "10000", "fedgcn-2"): 80.87,
    ("cora", "10000", "gcn"): 80.69,
    ("citeseer", "1", "fedgcn-0"): 61.70,
    ("citeseer", "1", "fedgcn-1"): 70.06,
    ("citeseer", "1", "fedgcn-2"): 69.33,
    ("citeseer", "10000", "fedgcn-0"): 58.41,
    ("citeseer", "10000", "fedgcn-1"): 69.30,
    ("citeseer", "10000", "fedgcn-2"): 69.48,
    ("citeseer", "10000", "gcn"): 69.14,
}
"""Means in percent that the paper prints; its 1-hop rows were made by the code that ``published-1-hop`` follows."""

KEY = ("dataset", "features", "beta", "method", "seed")
VALUES = ("accuracy", "accuracy_global", "seconds")


class Case(NamedTuple):
    dataset: str
    features: str
    beta: float
    method: str
    seed: int

    def key(self) -> dict[str, object]:
        return {**self._asdict(), "beta": f"{self.beta:g}"}


def cases(features: str, seeds: int) -> Iterator[Case]:
    """Yield all measurements, seed by seed, so that a stopped table is a fair one with fewer seeds."""
    for seed in range(seeds):
        for dataset in ("cora", "citeseer"):
            for beta in (1.0, 10000.0):
                for method in ("fedgcn-0", "fedgcn-1", "published-1-hop", "fedgcn-2", "local-gcn"):
                    yield Case(dataset, features, beta, method, seed)
            yield Case(dataset, features, 10000.0, "gcn", seed)


def train(method: str, graph: FederatedGraph, seed: int) -> Trained:
    """Train one method with the random streams that an audit cell of this seed uses."""
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(seed, "defense"))
    rng, cpu = derive(seed, "train"), torch.device("cpu")
    if method == "gcn":
        return GCN().train(graph, channel, rng=rng, device=cpu)
    if method == "local-gcn":
        return LocalGCN().train(graph, channel, rng=rng, device=cpu)
    if method == "published-1-hop":
        return published_one_hop.train(FedGCN(), graph, channel, rng)
    return FedGCN(hops=int(method.removeprefix("fedgcn-"))).train(graph, channel, rng=rng, device=cpu)


def run(results: Path, root: str | None, seeds: int, features: str) -> None:
    """Measure what is missing in ``results/fedgcn_table2.csv``, then print the table."""
    table = Table(results / "fedgcn_table2.csv", KEY, VALUES)
    graphs: dict[str, tuple[DatasetSpec, Graph]] = {}
    for case in cases(features, seeds):
        if table.has(case.key()):
            continue
        if case.dataset not in graphs:
            spec = DatasetSpec(case.dataset, root=root, features=features)
            graphs[case.dataset] = (spec, spec.load())
        spec, graph = graphs[case.dataset]
        partition = PartitionSpec("dirichlet", clients=10, beta=case.beta)
        federated = partition.apply(graph, spec, derive(case.seed, "partition"))
        start = time.perf_counter()
        trained = train(case.method, federated, case.seed)
        figures = {"accuracy": trained.client_mean, "accuracy_global": trained.whole_test_set}
        table.add({**case.key(), **figures, "seconds": f"{time.perf_counter() - start:.2f}"})
        print(*case, f"{100 * trained.client_mean:.2f}", flush=True)
    show(table, features)


def show(table: Table, features: str) -> None:
    """Print means and standard deviations over seeds, in percent, beside the published means."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in table.rows():
        if row["features"] == features:
            groups.setdefault((row["dataset"], row["beta"], row["method"]), []).append(row)
    print(
        f"\n{'data':9} {'beta':>6} {'method':16} {'seeds':>5} {'client mean':>14} {'whole test set':>14} {'paper':>6}"
        f" {'gap':>6}"
    )
    for key, rows in sorted(groups.items()):
        columns = []
        means = []
        for name in ("accuracy", "accuracy_global"):
            values = [100 * float(row[name]) for row in rows]
            means.append(statistics.fmean(values))
            spread = statistics.stdev(values) if len(values) > 1 else float("nan")
            columns.append(f"{means[-1]:6.2f} +- {spread:4.2f}")
        paper = PUBLISHED.get(key)
        compared = f"{paper:6.2f} {means[0] - paper:+6.2f}" if paper is not None else ""
        print(f"{key[0]:9} {key[1]:>6} {key[2]:16} {len(rows):5} {columns[0]:>14} {columns[1]:>14} {compared}")
