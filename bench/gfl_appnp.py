"""GFL-APPNP's Table 2 and Figure 2(a): test accuracy over 20 draws of each data set, each with a topology of its own.

Settings of appendix A.2.2; what it leaves open holds for all rows: Glorot's initial weights, raw features, the model of
the lowest validation loss (centralized GCN: the last one; centralized GAT: the best validation accuracy), accuracy over
single test samples. ``all-clients`` is GFL-APPNP with Algorithm 1's mean over all clients instead of those in training.
``lambda_max`` is the largest eigenvalue of ``B_N L^+``, which is ``1 / (N lambda_2(L))``.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fglaudit.datasets import CsbmTask, DatasetSpec
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.reproduce import gfl_appnp
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

PUBLISHED = {
    ("csbm-dnc", "I=1"): (93.2, 0.92),
    ("csbm-dnc", "I=10"): (93.4, 0.99),
    ("csbm-dnc", "I=20"): (93.3, 0.94),
    ("csbm-dnc", "I=50"): (93.0, 0.96),
    ("csbm-dnc", "v1"): (93.1, 0.83),
    ("csbm-dnc", "v2"): (82.3, 2.09),
    ("csbm-dnc", "appnp"): (93.2, 0.92),
    ("csbm-dnc", "gcn"): (95.2, 0.54),
    ("csbm-dnc", "gat"): (93.3, 1.03),
    ("csbm-dnc", "graphsage"): (70.2, 4.21),
    ("subcora", "I=1"): (54.2, 3.69),
    ("subcora", "I=10"): (54.1, 3.72),
    ("subcora", "I=20"): (54.3, 3.73),
    ("subcora", "I=50"): (54.0, 3.73),
    ("subcora", "v1"): (54.0, 4.12),
    ("subcora", "v2"): (47.3, 3.81),
    ("subcora", "appnp"): (54.2, 3.69),
    ("subcora", "gcn"): (51.9, 3.78),
    ("subcora", "gat"): (47.9, 3.01),
    ("subcora", "graphsage"): (47.0, 3.73),
    ("csbm-snc", "I=1"): (98.7, 0.26),
    ("csbm-snc", "I=10"): (92.4, 0.19),
    ("csbm-snc", "I=20"): (92.5, 0.17),
    ("csbm-snc", "I=50"): (92.5, 0.17),
    ("csbm-snc", "v1"): (99.2, 0.26),
    ("csbm-snc", "v2"): (90.7, 0.28),
    ("csbm-sc", "I=1"): (70.0, 0.32),
    ("csbm-sc", "I=10"): (70.0, 0.36),
    ("csbm-sc", "I=20"): (70.0, 0.30),
    ("csbm-sc", "I=50"): (70.2, 0.33),
    ("csbm-sc", "v1"): (68.7, 0.42),
    ("csbm-sc", "v2"): (69.0, 0.45),
    ("csbm-sc", "fedmlp I=10"): (61.0, 0.54),
    ("csbm-sc", "fedmlp I=20"): (61.0, 0.46),
    ("csbm-sc", "fedmlp I=50"): (70.0, 0.32),
    ("csbm-sc", "mlp"): (61.0, 0.60),
}
"""Means in percent that the paper prints, with its 95 % confidence intervals."""

SETTINGS: dict[str, dict[str, Any]] = {
    **gfl_appnp.SETTINGS,
    "connectivity": {"updates": 1500, "learning_rate": 0.5, "batch_size": 5},
}
V2_SNC = {"updates": 8000, "learning_rate": 0.6}
DEGREES = (25, 15, 10, 5)
METHODS = {
    "csbm-dnc": ("I=10", "v1", "v2", "I=20", "I=50", "all-clients", "appnp", "gcn", "gat", "graphsage", "I=1"),
    "csbm-sc": ("I=10", "v1", "v2", "I=20", "I=50", "fedmlp I=10", "fedmlp I=20", "fedmlp I=50", "mlp", "I=1"),
    "subcora": ("I=10", "v2", "I=20", "I=50", "all-clients", "appnp", "gcn", "gat", "graphsage", "v1", "I=1"),
    "csbm-snc": ("I=10", "v1", "v2", "I=20", "I=50", "all-clients", "I=1"),
    "connectivity": tuple(f"degree {degree}" for degree in DEGREES),
}
KEY = ("dataset", "method", "draw")
VALUES = ("accuracy", "round", "lambda_max", "cpu_seconds", "peak_rss_gb")


class Case(NamedTuple):
    dataset: str
    method: str
    draw: int


def cases(draws: int) -> Iterator[Case]:
    """Yield all measurements, all draws of one method at a time, the methods that matter most first for every data
    set."""
    for place in range(max(len(methods) for methods in METHODS.values())):
        for dataset, methods in METHODS.items():
            for method in methods[place : place + 1]:
                for draw in range(draws):
                    yield Case(dataset, method, draw)


def spec(case: Case, root: str | None) -> DatasetSpec:
    """Return the data set of a case."""
    if case.dataset == "connectivity":
        degree = float(case.method.removeprefix("degree "))
        task = CsbmTask(nodes=40, degree=degree, graph_signal=2.0, feature_signal=1.0)
        return DatasetSpec("csbm-sc", task=task, draw=case.draw)
    return DatasetSpec(case.dataset, draw=case.draw, root=root if case.dataset == "subcora" else None)


def protocol(case: Case) -> FederatedProtocol:
    """Return what a case trains."""
    cora = case.dataset == "subcora"
    full_batch: dict[str, Any] = {"rounds": 400, "local_steps": 10}
    match case.method:
        case "appnp":
            settings = SETTINGS[case.dataset]
            return APPNP(rounds=settings["updates"] // 10, learning_rate=settings["learning_rate"])
        case "gcn":
            return GCN(hidden=64, learning_rate=0.01 if cora else 0.1, weight_decay=0.0, dropout=0.0, **full_batch)
        case "gat":
            plain: dict[str, Any] = {
                "weight_decay": 0.0,
                "dropout": 0.0,
                "feature_dropout": 0.0,
                "choice": "validation",
            }
            return GAT(learning_rate=0.01 if cora else 0.02, **full_batch, **plain)
        case "graphsage":
            return GraphSAGE(rounds=400 if cora else 500, learning_rate=0.01 if cora else 0.02)
        case "mlp":
            return FedMLP(federated=False, rounds=20)
    if case.method.startswith("fedmlp"):
        steps = int(case.method.removeprefix("fedmlp I="))
        return FedMLP(rounds=2000 // steps, local_steps=steps)
    settings = dict(SETTINGS[case.dataset])
    if case.method == "v2" and case.dataset == "csbm-snc":
        settings |= V2_SNC
    steps = int(case.method.removeprefix("I=")) if case.method.startswith("I=") else 10
    rounds = settings.pop("updates") // steps
    variant = case.method if case.method in ("v1", "v2") else "full"
    averaging = "all" if case.method == "all-clients" else "trainers"
    return GFLAPPNP(variant=variant, averaging=averaging, rounds=rounds, local_steps=steps, **settings)


def lambda_max(graph: FederatedGraph) -> float:
    """Return the largest eigenvalue of ``B_N L^+`` for a connected graph, ``B_N = I / N - 1 1' / N^2``, L the
    Laplacian."""
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    eigenvalues = torch.linalg.eigvalsh(torch.diag(adjacency.sum(1)) - adjacency)
    return 1 / (graph.num_nodes * float(eigenvalues[1].item()))


def run(results: Path, root: str | None, draws: int) -> None:
    """Measure what is missing in ``results/gfl_appnp.csv``, then print the table."""
    table = Table(results / "gfl_appnp.csv", KEY, VALUES)
    for case in cases(draws):
        if table.has(case._asdict()):
            continue
        dataset = spec(case, root)
        graph = PartitionSpec("per-node").apply(dataset.load(), dataset, derive(case.draw, "partition"))
        channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(case.draw, "defense"))
        start = time.process_time()
        trained = protocol(case).train(graph, channel, rng=derive(case.draw, "train"), device=torch.device("cpu"))
        figures = {
            "accuracy": f"{trained.whole_test_set:.6f}",
            "round": trained.round,
            "lambda_max": f"{lambda_max(graph):.3e}",
            "cpu_seconds": f"{time.process_time() - start:.1f}",
            "peak_rss_gb": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f}",
        }
        table.add({**case._asdict(), **figures})
        print(*case, *figures.values(), flush=True)
    show(table)


def show(table: Table) -> None:
    """Print means with 95 % confidence intervals, in percent, beside the published ones."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table.rows():
        groups.setdefault((row["dataset"], row["method"]), []).append(row)
    print(
        f"\n{'data':13} {'method':13} {'draws':>5} {'accuracy':>14} {'paper':>13} {'gap':>6} {'lambda_max':>10}"
        f" {'cpu s':>6}"
    )
    for (dataset, method), rows in groups.items():
        values = [100 * float(row["accuracy"]) for row in rows]
        mean = statistics.fmean(values)
        half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")
        paper = PUBLISHED.get((dataset, method))
        compared = f"{paper[0]:5.1f} +- {paper[1]:4.2f} {mean - paper[0]:+6.2f}" if paper else " " * 20
        connectivity = statistics.fmean(float(row["lambda_max"]) for row in rows)
        seconds = statistics.fmean(float(row["cpu_seconds"]) for row in rows)
        print(
            f"{dataset:13} {method:13} {len(rows):5} {mean:6.2f} +- {half:4.2f} {compared} {connectivity:10.2e}"
            f" {seconds:6.1f}"
        )
