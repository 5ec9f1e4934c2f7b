"""GAP beside a perceptron of the same network with the same epsilon: a dense drawn graph, and Photo.

Both sets are split 75/10/15 and over 10 clients evenly. The drawn graph has 2000 nodes of median degree 100, 5 classes
and Gaussian features, drawn afresh for every seed: 40 % of its edges join nodes of one class, and rows tell classes
apart in part, so that neighbours' *features* say more than neighbours' numbers (``gap, codes``: the same sums, over
public codes).

What stands beside a setting has the same unit and an epsilon that is not larger:

* an edge: the same network before any sum, which reads no edge;
* the row of a reporting node: the same network before any sum, and public codes, which read none of these rows;
* any node's row and label: the network and codes trained by ``dp-sgd`` with the whole epsilon of 8, where GAP spends a
  part of it on its sums.

A setting's candidates are compared on validation nodes of the first seed; its accuracy is over the whole test set after
the last round. Rows are measured once, so a stopped measurement goes on where it was.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.accuracy.frontier import trained
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.partition import PartitionSpec
from fglaudit.registry import build
from fglaudit.reports.choosing.controls import Measured, bought
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

DENSE = CsbmOptions(
    nodes=2000,
    edges=112_000,
    classes=5,
    dimensions=64,
    features="gaussian",
    signal=0.3,
    homophily=0.4,
    degree_exponent=0.3,
)
DATASETS = ("dense", "photo")
KEY = ("dataset", "setting", "candidate", "nodes", "seed")
VALUES = ("accuracy", "before", "epsilon", "seconds")
EPSILON, DELTA = 8.0, 1e-5
EDGE, REPORTING, NODE = "edge", "reporting node", "node"
Fields = Mapping[str, Any]


class Setting(NamedTuple):
    """A row of the table.

    Attributes:
        unit: of its guarantee, and of what it is compared with; empty: in the clear.
        candidates: fields of the protocol and of the defense.
        control: whether others of its unit are measured against it.
        before: whether its accuracy is that before any sum was sent.
    """

    name: str
    unit: str
    protocol: str
    defense: str
    candidates: tuple[tuple[Fields, Fields], ...]
    control: bool = False
    before: bool = False


def _sums(unit: str) -> Fields:
    return {"on": "EmbeddingSums", "unit": unit, "epsilon": EPSILON, "delta": DELTA}


def _split(share: float) -> Fields:
    """Return a stack whose sums have ``share`` of the epsilon, and whose models have the rest."""
    return _stack(share * EPSILON, (1 - share) * EPSILON)


def _stack(sums: float, models: float) -> Fields:
    """Return noise on sums and on models, each with an epsilon of its own."""
    spent, left = {"epsilon": sums, "delta": DELTA / 2}, {"epsilon": models, "delta": DELTA / 2}
    return {
        "parts": (
            {"name": "gaussian", "on": "EmbeddingSums", "unit": NODE, **spent},
            {"name": "dp-sgd", "edges": "public", **left},
        )
    }


_PRIVATE: Fields = {"edges": "public", "epsilon": EPSILON, "delta": DELTA}
_HOPS = ((1,), (1, 2))
_EDGES = tuple(({"hops": hops, "noise_at": "server"}, _sums(EDGE)) for hops in _HOPS)
_LOCAL = tuple(({"hops": hops}, _sums(EDGE)) for hops in _HOPS)
_CODES = tuple(({"hops": hops, "noise_at": "server", "sums_of": "codes"}, _sums(EDGE)) for hops in _HOPS)
_REPORTS = tuple(
    ({"hops": hops, "unit": REPORTING, "most_uses": uses}, _sums(REPORTING))
    for hops in ((1, 2), (2, 3))
    for uses in (20, 0)
)
_STEPS: Fields = {"unit": NODE, "local_steps": 1}
_NODES = tuple(
    (
        {"hops": (2, 3), "most_uses": 50, "encoder_rounds": 10, "rounds": rounds, "learning_rate": 8.0, **_STEPS},
        _split(share),
    )
    for rounds in (5, 10)
    for share in (0.125, 0.25)
)
_PARTS: Fields = {"hops": (2, 3), "most_uses": 50, "encoder_rounds": 10, "rounds": 5, "learning_rate": 8.0, **_STEPS}
_ALONE = tuple(
    ({"hops": (1,), "encoder_rounds": rounds, "rounds": 1, "learning_rate": rate, **_STEPS}, _PRIVATE)
    for rounds in (10, 20)
    for rate in (4.0, 8.0)
)
_HEADS = tuple({"hops": hops, "home_weight": home} for hops, home in (((1, 2, 3), 1.5), ((2,), 1.5), ((1, 2, 4), 3.0)))

SETTINGS: tuple[Setting, ...] = (
    Setting("gap, clear", "", "gap", "none", tuple(({"hops": hops}, {}) for hops in _HOPS)),
    Setting("gap, edges at 8, trusted server", EDGE, "gap", "gaussian", _EDGES),
    Setting("gap, edges at 8", EDGE, "gap", "gaussian", _LOCAL),
    Setting("gap, codes, edges at 8, trusted server", EDGE, "gap", "gaussian", _CODES, control=True),
    Setting("gap, rows of reporting nodes at 8", REPORTING, "gap", "gaussian", _REPORTS),
    Setting("codes", REPORTING, "structure-only", "none", tuple((head, {}) for head in _HEADS), control=True),
    Setting("gap, nodes at 8", NODE, "gap", "stack", _NODES),
    # Where it goes: what of a split of the epsilon is spent on sums (2) or models (6), beside next to no noise (5000).
    Setting("gap, nodes: next to no noise", "", "gap", "stack", ((_PARTS, _stack(5000.0, 5000.0)),)),
    Setting("gap, nodes: noise on sums alone", "", "gap", "stack", ((_PARTS, _stack(2.0, 5000.0)),)),
    Setting("gap, nodes: noise on models alone", "", "gap", "stack", ((_PARTS, _stack(5000.0, 6.0)),)),
    Setting("gap, nodes: both", "", "gap", "stack", ((_PARTS, _stack(2.0, 6.0)),)),
    Setting("gap, nodes: both, 10 uses", "", "gap", "stack", (({**_PARTS, "most_uses": 10}, _stack(2.0, 6.0)),)),
    Setting("gap, nodes: both, all uses", "", "gap", "stack", (({**_PARTS, "most_uses": 0}, _stack(2.0, 6.0)),)),
    Setting("perceptron, nodes at 8", NODE, "gap", "dp-sgd", _ALONE, control=True, before=True),
)


def run(results: Path, root: str | None, seeds: int, datasets: tuple[str, ...]) -> None:
    """Measure what is missing in ``gap.csv``, then print the tables."""
    table = Table(results / "gap.csv", KEY, VALUES)
    for dataset in datasets:
        for seed in range(seeds):
            for setting in SETTINGS:
                measure(table, dataset, setting, choose(table, dataset, setting, root), root, "test", seed)
        show(table, dataset)


@lru_cache(maxsize=2)
def federated(dataset: str, root: str | None, seed: int) -> FederatedGraph:
    """Return the data split over 10 clients, evenly."""
    shares: dict[str, Any] = {"split": "random-shared", "train": 0.75, "val": 0.1, "test": 0.15}
    drawn = dataclasses.replace(DENSE, seed=seed) if dataset == "dense" else None
    spec = DatasetSpec(dataset if drawn is None else "csbm", root=root, csbm=drawn, **shares)
    return PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(spec.load(), spec, derive(seed, "partition"))


def choose(table: Table, dataset: str, setting: Setting, root: str | None) -> int:
    """Return which candidate is best on the validation nodes of seed 0; the first of equal ones."""
    for index in range(len(setting.candidates)):
        measure(table, dataset, setting, index, root, "validation", 0)
    column = "before" if setting.before else "accuracy"
    scores = {int(row["candidate"]): float(row[column]) for row in _rows(table, dataset, setting.name, "validation")}
    return max(scores, key=lambda index: (scores[index], -index))


def measure(table: Table, dataset: str, setting: Setting, index: int, root: str | None, nodes: str, seed: int) -> None:
    """Add one row unless it is there."""
    key = {"dataset": dataset, "setting": setting.name, "candidate": index, "nodes": nodes, "seed": seed}
    if table.has(key):
        return
    graph = federated(dataset, root, seed)
    graph = dataclasses.replace(graph, test=graph.val) if nodes == "validation" else graph
    fields, strength = setting.candidates[index]
    protocol: FederatedProtocol = build("protocol", setting.protocol, fields)
    defense: Defense = build("defense", setting.defense, strength)
    session = defense.bind(protocol.context(graph))
    start = time.process_time()
    found = trained(protocol, session, graph, seed)
    encoder = getattr(protocol, "encoder_rounds", 0)
    before = f"{float(found.accuracy_global[encoder - 1]):.6f}" if encoder else ""
    promise = session.guarantee()
    epsilon = "" if promise is None or promise.epsilon_accounted is None else f"{promise.epsilon_accounted:.6f}"
    took = time.process_time() - start
    table.add({**key, "accuracy": found.whole_test_set, "before": before, "epsilon": epsilon, "seconds": f"{took:.2f}"})
    print(*key.values(), f"{100 * found.whole_test_set:.1f} % in {took:.1f} s of CPU", flush=True)


def show(table: Table, dataset: str) -> None:
    """Print one data set's table in Markdown."""
    before = Measured("the same network before any sum", _by_seed(table, dataset, "gap, clear", "before"), 0.0, True)
    found = [(setting, _measured(table, dataset, setting)) for setting in SETTINGS]
    print(f"\n{dataset}\n\n| setting | a record | seeds | accuracy | over the best control |\n|---|---|---|---|---|")
    print(f"| {before.name} | none | {len(before.accuracy)} | {100 * before.mean:.1f} | control |")
    for setting, one in found:
        if not one.accuracy:
            continue
        controls = [other for _, other in _controls(found, setting)]
        gain = bought(one, controls if setting.unit == NODE else [*controls, before])
        words = "control" if setting.control else "" if gain is None else gain.words
        unit = setting.unit or "in the clear"
        print(f"| {one.name} | {unit} | {len(one.accuracy)} | {100 * one.mean:.1f} | {words} |")


def _controls(found: list[tuple[Setting, Measured]], setting: Setting) -> Iterator[tuple[Setting, Measured]]:
    return ((other, one) for other, one in found if other.control and other.unit == setting.unit and one.accuracy)


def _measured(table: Table, dataset: str, setting: Setting) -> Measured:
    accuracy = _by_seed(table, dataset, setting.name, "before" if setting.before else "accuracy")
    return Measured(setting.name, accuracy, EPSILON, setting.control)


def _by_seed(table: Table, dataset: str, setting: str, column: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[column]) for row in _rows(table, dataset, setting, "test")}


def _rows(table: Table, dataset: str, setting: str, nodes: str) -> list[dict[str, str]]:
    wanted = (dataset, setting, nodes)
    return [row for row in table.rows() if (row["dataset"], row["setting"], row["nodes"]) == wanted]
