"""What FedGAT's defenses leave of the attack by a client, and what they cost in accuracy: Cora, 10 clients, vector
variant.

The rows behind the messages are those of the matrix variant, whose messages are ten times as large. Accuracy is that of
a whole training with the default settings (by moments where the defense leaves the messages as they are); the attack,
its control and its self-test are those of an audit cell that pre-trains with the same seed. Of several attacks the one
that rebuilds most rows counts. Targets are the neighbours at other clients, every client in turn.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import torch

from fglaudit.attacks.neighborhoods.merged_rows import MergedRows
from fglaudit.attacks.neighborhoods.vector_columns import VectorColumns
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.graph.drop_singletons import DropSingletons
from fglaudit.defenses.graph.fewer_features import FewerFeatures
from fglaudit.defenses.graph.merge_neighbors import MergeNeighbors
from fglaudit.defenses.graph.minimum_neighborhood import MinimumNeighborhood
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.execution.run_cell import run_cell
from fglaudit.interfaces import Defense
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.recording import Kept, record_training
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.suite.cell import Cell, arguments
from fglaudit.wire.channel import Keep

KEY = ("dataset", "clients", "defense", "arguments", "seed")
VALUES = (
    "accuracy",
    "accuracy_global",
    "attack",
    "status",
    "exact_at_node",
    "exact_matched",
    "advantage",
    "advantage_high",
    "f1",
    "control_f1",
    "cosine",
    "control_cosine",
    "cpu_seconds",
)
DEFENSES: tuple[Defense, ...] = (
    NoDefense(),
    DropSingletons(),
    MinimumNeighborhood(fewest=4),
    FewerFeatures(share=0.25),
    Gaussian(epsilon=8.0, on="RawFeatures"),
    Gaussian(epsilon=1000.0, on="RawFeatures"),
    Gaussian(epsilon=10000.0, on="RawFeatures"),
    MergeNeighbors(size=2),
    MergeNeighbors(size=4),
    Gaussian(epsilon=8.0, on="MaskedVectors"),
    Gaussian(epsilon=10000.0, on="MaskedVectors"),
)


def run(results: Path, root: str | None, seeds: int = 1, dataset: str = "cora", clients: int = 10) -> None:
    """Measure what is missing in ``results/fedgat_defenses.csv``, then print the table."""
    table = Table(results / "fedgat_defenses.csv", KEY, VALUES)
    data, partition = DatasetSpec(dataset, root=root), PartitionSpec("dirichlet", clients, 10000.0)
    for seed in range(seeds):
        for defense in DEFENSES:
            key = {"dataset": dataset, "clients": clients, "defense": type(defense).name, "seed": seed}
            key |= {"arguments": arguments(defense)}
            if not table.has(key):
                table.add({**key, **measure(data, partition, defense, seed)})
                print(*table.rows()[-1].values(), flush=True)
    for row in table.rows():
        print(*(f"{name}={value}" for name, value in row.items() if value))


def measure(data: DatasetSpec, partition: PartitionSpec, defense: Defense, seed: int) -> dict[str, str]:
    """Return the figures of one defense."""
    started, cpu = time.process_time(), torch.device("cpu")
    graph = partition.apply(data.load(), data, derive(seed, "partition"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*because of the noise on the messages", category=UserWarning)
        whole = FedGAT(variant="vector")
        trained = record_training(graph, whole, defense, seed=seed, keep=Kept(messages=Keep({}), clients=()))[1].trained
        observers = (ObserverSpec(parties=("client:each",)),)
        short = FedGAT(variant="vector", rounds=1)
        cell = Cell(data, partition, short, defense, seed, observers, (VectorColumns(), MergedRows()))
        findings = run_cell(cell, suite="bench", device=cpu).findings
    found = max(findings, key=lambda f: -1.0 if f.exact_rate is None else f.exact_rate)
    columns = {name: getattr(found, name) for name in VALUES if name in type(found).__dataclass_fields__}
    columns |= {"accuracy": trained.client_mean, "accuracy_global": trained.whole_test_set}
    columns |= {"exact_at_node": found.exact_rate, "exact_matched": found.matched_rate}
    text = {name: f"{value:.4f}" for name, value in columns.items() if isinstance(value, float)}
    return {
        **dict.fromkeys(VALUES, ""),
        **text,
        "status": str(found.status),
        "cpu_seconds": f"{time.process_time() - started:.0f}",
    }
