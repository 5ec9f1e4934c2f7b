"""LPGNN on Cora beside its published accuracy and beside random rows, which carry nothing of the features.

A 50/25/25 split, drawn per seed, as the authors'; 10 clients drawn evenly. Rows by ``multi-bit`` at epsilon 1; labels
as they are, or by k-ary response at epsilon 1. Random rows are fair coins in place of every feature, treated alike:
what they reach is structure's. A setting's steps and decay are those of the authors' repository; nothing is chosen
here. Rows are measured once, so a stopped measurement goes on where it was.
"""

from __future__ import annotations

import dataclasses
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.accuracy.frontier import trained
from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.defenses.none import NoDefense
from fglaudit.graph import FederatedGraph
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.private.lpgnn import LPGNN
from fglaudit.reports.choosing.controls import Measured, bought
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

KEY = ("setting", "rows", "seed")
VALUES = ("accuracy", "seconds")
FEATURES, RANDOM = "features", "random"


class Setting(NamedTuple):
    """Fields of the protocol, the epsilon of rows (0: as they are), and what was published."""

    name: str
    fields: dict[str, Any]
    rows: float
    published: str = ""


SETTINGS = (
    Setting("in the clear", {"label_epsilon": 0.0, "feature_hops": 0, "label_hops": 0, "weight_decay": 1e-2}, 0.0),
    Setting(
        "rows at 1",
        {"label_epsilon": 0.0, "feature_hops": 16, "label_hops": 0, "weight_decay": 1e-2, "dropout": 0.75},
        1.0,
        "83.9",
    ),
    Setting("rows at 1, labels at 1", {}, 1.0),
)


def run(results: Path, root: str | None, seeds: int) -> None:
    """Measure what is missing in ``lpgnn.csv``, then print the table."""
    table = Table(results / "lpgnn.csv", KEY, VALUES)
    for seed in range(seeds):
        for setting in SETTINGS:
            for rows in (FEATURES, RANDOM):
                measure(table, setting, rows, root, seed)
    print("\n| setting | published | features | random rows | features over random rows |\n|---|---|---|---|---|")
    for setting in SETTINGS:
        own, random = (
            Measured(rows, _by_seed(table, setting, rows), setting.rows, rows == RANDOM) for rows in (FEATURES, RANDOM)
        )
        gain = bought(own, [random])
        words = "" if gain is None else gain.words
        print(f"| {setting.name} | {setting.published} | {100 * own.mean:.1f} | {100 * random.mean:.1f} | {words} |")


@lru_cache(maxsize=2)
def federated(root: str | None, seed: int) -> FederatedGraph:
    """Return Cora with the split of ``seed``."""
    spec = DatasetSpec("cora", root=root, split="random-shared", train=0.5, val=0.25, test=0.25)
    return PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(spec.load(), spec, derive(seed, "partition"))


def measure(table: Table, setting: Setting, rows: str, root: str | None, seed: int) -> None:
    """Add one row unless it is there."""
    key = {"setting": setting.name, "rows": rows, "seed": seed}
    if table.has(key):
        return
    graph = federated(root, seed)
    if rows == RANDOM:
        coins = torch.rand(graph.x.shape, generator=derive(seed, "random rows")).round()
        graph = dataclasses.replace(graph, x=coins)
    protocol = LPGNN(**setting.fields)
    defense = MultiBit(epsilon=setting.rows) if setting.rows else NoDefense()
    start = time.process_time()
    found = trained(protocol, defense.bind(protocol.context(graph)), graph, seed)
    table.add({**key, "accuracy": found.whole_test_set, "seconds": f"{time.process_time() - start:.2f}"})
    print(*key.values(), f"{100 * found.whole_test_set:.1f} %", flush=True)


def _by_seed(table: Table, setting: Setting, rows: str) -> dict[int, float]:
    wanted = (setting.name, rows)
    return {int(row["seed"]): float(row["accuracy"]) for row in table.rows() if (row["setting"], row["rows"]) == wanted}
