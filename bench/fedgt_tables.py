"""FedGT's Tables 1, 2, 4, 11 and 12: clients' mean test accuracy in the round with the best validation accuracy, 3
seeds.

Settings of the paper's section D.3: largest component of the graph, 20/40/40 % of every client's nodes (Louvain:
60/20/20), local differential privacy with delta 0.002 and lambda 0.001 on the uploaded global nodes alone. What it
leaves open (dropout, feed-forward width, how neighbours are drawn and counted) has the protocol's defaults. They were
chosen on Cora, seeds 0 and 1, with the accuracy on test nodes in view, so those two seeds are not used here: the first
one is 2.

``local-gt`` is FedGT's model trained by every client alone; ``fedgt-*`` are FedGT with another similarity (Table 12),
of which ``fedgt-fedavg`` is the average for all. ``fedavg-sage`` is the FedAvg row of Tables 1 and 2,
``fedavg-gophormer`` and ``fedavg-graphgps`` are the rows Gophormer and GraphGPS.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from fglaudit.context import Context
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.reproduce.fedgt import SETTINGS
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

SCHEMES = {
    "non-overlapping": "metis",
    "overlapping": "overlapping",
    "overlapping, own splits": "overlapping",
    "louvain": "louvain",
    "unbalanced": "unbalanced",
}
CLIENTS = {"non-overlapping": (5, 10, 20), "overlapping": (10, 30, 50)}
DATASETS = ("cora", "citeseer", "photo", "computers", "pubmed")
TRANSFORMERS: dict[str, type[FederatedProtocol]] = {
    "fedavg-gophormer": FedAvgGophormer,
    "fedavg-graphgps": FedAvgGraphGPS,
}
BASELINES: dict[str, type[FederatedProtocol]] = {"local-gt": LocalGT, "fedavg-sage": FedAvgSage, **TRANSFORMERS}
SIMILARITIES = ("global-nodes-unaligned", "local-updates", "label-distributions", "fedavg")

PUBLISHED = {
    ("fedgt", "cora", "non-overlapping"): (84.41, 81.49, 81.25),
    ("fedgt", "citeseer", "non-overlapping"): (72.95, 71.98, 69.60),
    ("fedgt", "pubmed", "non-overlapping"): (87.21, 86.65, 85.79),
    ("fedgt", "computers", "non-overlapping"): (90.78, 90.59, 90.22),
    ("fedgt", "photo", "non-overlapping"): (93.48, 93.17, 92.20),
    ("fedgt", "cora", "overlapping"): (81.73, 77.94, 76.20),
    ("fedgt", "citeseer", "overlapping"): (72.40, 68.86, 67.71),
    ("fedgt", "pubmed", "overlapping"): (86.90, 86.15, 84.95),
    ("fedgt", "computers", "overlapping"): (90.76, 89.98, 89.04),
    ("fedgt", "photo", "overlapping"): (93.19, 92.03, 91.37),
    ("local-gt", "cora", "non-overlapping"): (80.10, 77.43, 72.75),
    ("local-gt", "citeseer", "non-overlapping"): (70.10, 68.77, 64.51),
    ("local-gt", "pubmed", "non-overlapping"): (85.30, 84.88, 82.66),
    ("local-gt", "computers", "non-overlapping"): (89.18, 88.25, 84.34),
    ("local-gt", "photo", "non-overlapping"): (91.85, 89.56, 85.83),
    ("local-gt", "cora", "overlapping"): (78.14, 73.60, 69.87),
    ("local-gt", "citeseer", "overlapping"): (68.94, 66.13, 63.70),
    ("local-gt", "pubmed", "overlapping"): (84.90, 83.27, 80.88),
    ("local-gt", "computers", "overlapping"): (89.17, 85.77, 81.40),
    ("local-gt", "photo", "overlapping"): (91.65, 86.20, 84.71),
    ("fedavg-sage", "cora", "non-overlapping"): (79.63, 72.06, 69.50),
    ("fedavg-sage", "citeseer", "non-overlapping"): (70.24, 68.32, 65.12),
    ("fedavg-sage", "pubmed", "non-overlapping"): (84.87, 78.92, 78.21),
    ("fedavg-sage", "computers", "non-overlapping"): (88.03, 81.82, 78.19),
    ("fedavg-sage", "photo", "non-overlapping"): (89.26, 85.31, 82.59),
    ("fedavg-sage", "cora", "overlapping"): (78.55, 69.56, 65.19),
    ("fedavg-sage", "citeseer", "overlapping"): (68.73, 65.02, 63.85),
    ("fedavg-sage", "pubmed", "overlapping"): (84.66, 80.62, 80.18),
    ("fedavg-sage", "computers", "overlapping"): (87.65, 77.56, 76.41),
    ("fedavg-sage", "photo", "overlapping"): (89.90, 81.42, 76.98),
    ("fedavg-gophormer", "cora", "non-overlapping"): (80.20, 74.34, 72.05),
    ("fedavg-gophormer", "citeseer", "non-overlapping"): (71.22, 69.24, 65.91),
    ("fedavg-gophormer", "pubmed", "non-overlapping"): (86.23, 82.31, 80.44),
    ("fedavg-gophormer", "computers", "non-overlapping"): (88.41, 83.10, 80.33),
    ("fedavg-gophormer", "photo", "non-overlapping"): (91.34, 86.05, 83.62),
    ("fedavg-gophormer", "cora", "overlapping"): (78.74, 73.41, 68.30),
    ("fedavg-gophormer", "citeseer", "overlapping"): (69.53, 65.89, 63.15),
    ("fedavg-gophormer", "pubmed", "overlapping"): (85.47, 82.14, 80.85),
    ("fedavg-gophormer", "computers", "overlapping"): (89.03, 82.89, 80.45),
    ("fedavg-gophormer", "photo", "overlapping"): (91.74, 84.20, 79.16),
    ("fedavg-graphgps", "cora", "non-overlapping"): (81.46, 75.12, 73.63),
    ("fedavg-graphgps", "citeseer", "non-overlapping"): (71.19, 69.54, 65.19),
    ("fedavg-graphgps", "pubmed", "non-overlapping"): (86.39, 83.40, 80.93),
    ("fedavg-graphgps", "computers", "non-overlapping"): (89.12, 84.53, 81.80),
    ("fedavg-graphgps", "photo", "non-overlapping"): (91.45, 87.43, 83.32),
    ("fedavg-graphgps", "cora", "overlapping"): (79.40, 75.42, 69.07),
    ("fedavg-graphgps", "citeseer", "overlapping"): (69.95, 65.77, 62.54),
    ("fedavg-graphgps", "pubmed", "overlapping"): (85.49, 82.73, 80.50),
    ("fedavg-graphgps", "computers", "overlapping"): (89.55, 83.97, 81.06),
    ("fedavg-graphgps", "photo", "overlapping"): (91.97, 84.11, 81.59),
    ("fedgt-global-nodes-unaligned", "cora", "overlapping"): (79.80, 76.19, 75.16),
    ("fedgt-local-updates", "cora", "overlapping"): (78.36, 74.71, 70.58),
    ("fedgt-label-distributions", "cora", "overlapping"): (81.79, 77.45, 75.67),
    ("fedgt-fedavg", "cora", "overlapping"): (77.82, 71.40, 68.79),
}
"""Means in percent that the paper prints, by clients as in ``CLIENTS``; Table 12 prints 77.84 where Table 2 has
77.94."""

PUBLISHED_TEN = {
    ("fedgt", "cora", "louvain"): 87.29,
    ("fedgt", "citeseer", "louvain"): 74.21,
    ("fedgt", "pubmed", "louvain"): 87.95,
    ("fedgt", "cora", "unbalanced"): 76.46,
    ("fedgt", "citeseer", "unbalanced"): 66.72,
    ("fedgt", "pubmed", "unbalanced"): 83.29,
    ("fedgt", "computers", "unbalanced"): 86.47,
    ("fedgt", "photo", "unbalanced"): 86.74,
}
"""The same for the partitions with 10 clients (Tables 4 and 11)."""

KEY = ("dataset", "setting", "clients", "method", "seed")
VALUES = ("accuracy", "accuracy_last", "round", "cpu_seconds", "gb_up", "gb_down")


class Case(NamedTuple):
    dataset: str
    setting: str
    clients: int
    method: str
    seed: int

    def published(self) -> float | None:
        """Return the mean that the paper prints."""
        key = (self.method, self.dataset, self.setting)
        if self.setting in CLIENTS and key in PUBLISHED:
            return PUBLISHED[key][CLIENTS[self.setting].index(self.clients)]
        return PUBLISHED_TEN.get(key)


FIRST_SEED = 2


def cases(seeds: int, datasets: Sequence[str]) -> Iterator[Case]:
    """Yield all measurements, data set by data set and seed by seed; Tables 1 and 2 first, their graph transformers
    after the rest of them."""
    for methods in (("fedgt", "local-gt", "fedavg-sage", "fedgt-fedavg"), tuple(TRANSFORMERS)):
        for dataset in datasets:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                for setting, counts in CLIENTS.items():
                    # The Amazon graphs are asked for with 10 clients; Cora, CiteSeer and PubMed with all numbers of the
                    # paper.
                    for clients in counts if dataset in ("cora", "citeseer", "pubmed") else (10,):
                        for method in methods:
                            yield Case(dataset, setting, clients, method, seed)
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for clients in CLIENTS["overlapping"] if "cora" in datasets else ():
            for similarity in SIMILARITIES[:-1]:
                yield Case("cora", "overlapping", clients, f"fedgt-{similarity}", seed)
        for dataset in datasets:
            for setting in ("louvain", "unbalanced"):
                if ("fedgt", dataset, setting) in PUBLISHED_TEN:
                    yield Case(dataset, setting, 10, "fedgt", seed)


def protocol(case: Case) -> FederatedProtocol:
    """Return what a case trains."""
    if case.method in BASELINES:
        return BASELINES[case.method](**SETTINGS[case.dataset])
    _, _, similarity = case.method.partition("-")
    return FedGT(similarity=similarity or "global-nodes", **SETTINGS[case.dataset])


def federated(case: Case, root: str | None) -> FederatedGraph:
    """Return the case's graph, split over clients."""
    fractions = (0.6, 0.2, 0.2) if case.setting == "louvain" else (0.2, 0.4, 0.4)
    # "20 % of each subgraph": overlapping clients that draw apart train on labels that others are tested on, so they
    # share a split.
    shared = "random-shared" if case.setting == "overlapping" else "random"
    spec = DatasetSpec(case.dataset, root, "raw", None, shared, *fractions, component="largest")
    partition = PartitionSpec(SCHEMES[case.setting], clients=case.clients)
    return partition.apply(spec.load(), spec, derive(case.seed, "partition"))


def run(results: Path, root: str | None, seeds: int, datasets: Sequence[str] = DATASETS) -> None:
    """Measure what is missing in ``results/fedgt_tables.csv``, then print the table."""
    table = Table(results / "fedgt_tables.csv", KEY, VALUES)
    for case in cases(seeds, datasets):
        if not table.has(case._asdict()):
            table.add({**case._asdict(), **measure(case, federated(case, root))})
            print(*table.rows()[-1].values(), flush=True)
    show(table)


def measure(case: Case, graph: FederatedGraph) -> dict[str, str]:
    """Train once, with the random streams that an audit cell of this seed uses."""
    trainee = protocol(case)
    # The baselines have no global nodes, and the paper's no noise.
    channel = noisy_channel(trainee, graph, case.seed, noise=isinstance(trainee, FedGT))
    start = time.process_time()
    trained = trainee.train(graph, channel, rng=derive(case.seed, "train"), device=torch.device("cpu"))
    return {
        "accuracy": f"{trained.client_mean:.6f}",
        "accuracy_last": f"{float(trained.accuracy[-1].nanmean().item()):.6f}",
        "round": str(trained.round + 1),
        "cpu_seconds": f"{time.process_time() - start:.1f}",
        "gb_up": f"{float(channel.bytes_up.sum()) / 1e9:.3f}",
        "gb_down": f"{float(channel.bytes_down.sum()) / 1e9:.3f}",
    }


def noisy_channel(trainee: FederatedProtocol, graph: FederatedGraph, seed: int, *, noise: bool) -> RecordingChannel:
    """Return the channel of one training, with the paper's noise on global nodes or without."""
    releases = trainee.releases(graph)
    context = Context(type(trainee).name, trainee.num_rounds, graph.num_clients, graph.num_features, releases)
    session = ClippedLaplace(clip=0.002, scale=0.001).bind(context) if noise else DefenseSession()
    return RecordingChannel(session, graph.num_clients, derive(seed, "defense"))


def show(table: Table) -> None:
    """Print means and standard deviations over seeds, in percent, beside the published means."""
    groups: dict[Case, list[float]] = {}
    for row in table.rows():
        case = Case(row["dataset"], row["setting"], int(row["clients"]), row["method"], 0)
        groups.setdefault(case, []).append(100 * float(row["accuracy"]))
    print(
        f"\n{'data':9} {'setting':15} {'clients':>7} {'method':28} {'runs':>4} {'accuracy':>14} {'paper':>6} {'gap':>6}"
    )
    for case, values in sorted(groups.items()):
        mean, paper = statistics.fmean(values), case.published()
        spread = statistics.stdev(values) if len(values) > 1 else float("nan")
        compared = f"{paper:6.2f} {mean - paper:+6.2f}" if paper is not None else ""
        print(
            f"{case.dataset:9} {case.setting:15} {case.clients:7} {case.method:28} {len(values):4} "
            f"{mean:6.2f} +- {spread:4.2f} {compared}"
        )
