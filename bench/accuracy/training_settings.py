"""Which optimizer and features train FedGCN on graphs unlike Cora: dense ones (Photo, Computers) and ones whose
neighbours differ in class (Chameleon, Squirrel).

10 clients, Dirichlet beta 10000, 100 rounds of 3 steps, public splits (Photo and Computers: 20 % of all nodes train,
40 % validate). Settings are compared on validation nodes; test nodes are printed beside them. ``collapsed`` says
whether a record of this training has the note on collapsed training.

``training-settings.csv`` has a row per data set, hops, settings and seed. ``python -m bench training-settings``.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.spec import Scaling, Split
from fglaudit.federated.collapse import collapsed
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

DATASETS = ("chameleon", "squirrel", "photo", "computers")
HOPS = (0, 1, 2)
ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01}
SETTINGS: dict[str, tuple[Scaling, dict[str, Any]]] = {
    "defaults": ("raw", {}),
    "adam": ("raw", ADAM),
    "adam, row-normalised": ("row-normalised", ADAM),
}
"""By name, the features and the fields of FedGCN that are set."""
ROUNDS = 100
KEY = ("dataset", "hops", "settings", "seed")
VALUES = ("validation", "test", "collapsed", "seconds")


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing, print every row."""
    table = Table(results / "training-settings.csv", KEY, VALUES)
    for seed in range(seeds):
        for dataset in DATASETS:
            for hops in HOPS:
                for name in SETTINGS:
                    key = {"dataset": dataset, "hops": hops, "settings": name, "seed": seed}
                    if not table.has(key):
                        table.add(key | measure(dataset, hops, name, seed, root))
    for row in table.rows():
        print(*row.values())


def measure(dataset: str, hops: int, name: str, seed: int, root: str | None) -> dict[str, object]:
    """Return the values of one training, accuracies in percent."""
    features, fields = SETTINGS[name]
    split: Split = "random-shared" if dataset in ("photo", "computers") else "public"
    spec = DatasetSpec(dataset, root, features, split=split)
    graph = PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(spec.load(), spec, derive(seed, "partition"))
    both: FederatedGraph = dataclasses.replace(
        graph, test=tuple(val | test for val, test in zip(graph.val, graph.test, strict=True))
    )
    protocol = FedGCN(hops=hops, rounds=ROUNDS, **fields)
    channel = RecordingChannel(DefenseSession(), graph.num_clients, derive(seed, "defense"))
    start = time.process_time()
    trained = protocol.train(both, channel, rng=derive(seed, "train"), device=torch.device("cpu"))
    seconds = time.process_time() - start
    assert trained.right is not None
    seen = torch.cat(both.test)
    val, right = torch.cat(graph.val)[seen], trained.right.double()
    return {
        "validation": f"{100 * float(right[val].mean().item()):.2f}",
        "test": f"{100 * float(right[~val].mean().item()):.2f}",
        "collapsed": "yes" if collapsed(protocol, trained, both) else "no",
        "seconds": f"{seconds:.1f}",
    }
