"""Which optimizer, learning rate and features train the convolutional and the attention protocols on graphs unlike
Cora: dense ones (Photo, Computers), ones whose neighbours differ in class (Chameleon, Squirrel), and PubMed.

10 clients, Dirichlet beta 10000, 300 rounds, public splits (Photo and Computers: 20 % of all nodes train, 40 %
validate). Settings are compared on validation nodes; test nodes are printed beside them. ``collapsed`` says whether a
record of this training has the note on collapsed training.

``training-settings.csv`` has a row per data set, protocol, settings and seed. ``python -m bench training-settings``.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.spec import Scaling, Split
from fglaudit.federated.collapse import collapsed
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

DATASETS = ("chameleon", "squirrel", "photo", "computers", "pubmed")
PROTOCOLS: dict[str, Callable[..., FederatedProtocol]] = {
    "fedgcn, 0 hops": partial(FedGCN, hops=0),
    "fedgcn, 1 hop": partial(FedGCN, hops=1),
    "fedgcn, 2 hops": partial(FedGCN, hops=2),
    "gcn": GCN,
    "fedgat": FedGAT,
    "dist-gat": DistGAT,
    "gat": GAT,
}
SETTINGS: dict[str, tuple[Scaling, dict[str, Any]]] = {
    "defaults": ("raw", {}),
    "adam, 0.01": ("raw", {"optimizer": "adam", "learning_rate": 0.01}),
    "adam, 0.01, row-normalised": ("row-normalised", {"optimizer": "adam", "learning_rate": 0.01}),
    "adam, 0.03": ("raw", {"optimizer": "adam", "learning_rate": 0.03}),
    "adam, 0.003": ("raw", {"optimizer": "adam", "learning_rate": 0.003}),
}
"""By name, the features and the fields of the protocol that are set."""
ROUNDS = 300
KEY = ("dataset", "protocol", "settings", "seed")
VALUES = ("validation", "test", "collapsed", "seconds")


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing, print every row."""
    table = Table(results / "training-settings.csv", KEY, VALUES)
    for seed in range(seeds):
        for dataset in DATASETS:
            for method, name in itertools.product(PROTOCOLS, SETTINGS):
                key = {"dataset": dataset, "protocol": method, "settings": name, "seed": seed}
                if not table.has(key):
                    table.add(key | measure(dataset, method, name, seed, root))
    for row in table.rows():
        print(*row.values())


def measure(dataset: str, method: str, name: str, seed: int, root: str | None) -> dict[str, object]:
    """Return the values of one training, accuracies in percent."""
    features, fields = SETTINGS[name]
    split: Split = "random-shared" if dataset in ("photo", "computers") else "public"
    spec = DatasetSpec(dataset, root, features, split=split)
    graph = PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(spec.load(), spec, derive(seed, "partition"))
    both: FederatedGraph = dataclasses.replace(
        graph, test=tuple(val | test for val, test in zip(graph.val, graph.test, strict=True))
    )
    protocol = PROTOCOLS[method](rounds=ROUNDS, **fields)
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
