"""Accuracy against epsilon, with the controls that cost nothing: FedGCN's noise, structure only, private reports, GAP.

Public splits, 10 clients drawn evenly; of Photo, which has none, 20 nodes per class train and 30 validate, drawn per
seed. Accuracy is over the whole test set after the last round. A setting's candidates are compared on the validation
nodes of the first seeds (``CHOSEN_ON``); the best one is used for all seeds. What sends codes or reports has the same
candidates, ``HEADS``. Rows of the table are pairs (setting, candidate) and are measured once, so a stopped measurement
goes on where it was.

What reports add stands beside three things: ``TWIN``, the very head that was chosen for them, trained without any
report; "codes, own row", the head that is best without; and the best control of all. "Own row alone" is
``private-reports`` when nothing was reported yet: the encoder, the same head on a node's own row.

What trains on rows of validation nodes (``pseudo_labels``) knows more of them than of others. Its candidates are
compared on halves of the validation nodes: one half as if it were reporting nodes, the other trained on, and the other
way round.

Seconds are CPU seconds of the process.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.partition import PartitionSpec
from fglaudit.partition.facts import chance
from fglaudit.registry import build
from fglaudit.reports.choosing.controls import Measured, bought
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

DATASETS = ("cora", "citeseer", "pubmed", "photo")
KEY = ("dataset", "setting", "candidate", "nodes", "seed")
VALUES = ("accuracy", "chance", "epsilon", "seconds", "before")
PER_CLASS, VALIDATING = 20, 30
REPORTED = "reports at 4"
BETTER = "reports at 4, pseudo-labels"
TWIN = "the head of reports at 4, without reports"
OWN_ROW_ALONE = "own row alone"
BETTER_TWIN = f"the head of {BETTER}, with neither"
TWINS = {TWIN: REPORTED, BETTER_TWIN: BETTER}
"""Heads over codes alone, without reports and without validation rows, and for what they were chosen."""


class Setting(NamedTuple):
    """A row of the table.

    Attributes:
        protocol: its name.
        candidates: fields of the protocol, of which the best on validation nodes are used.
        defense: name and fields.
        control: whether others are measured against it.
        clear: whether features leave their client without any protection.
        edges: whether its epsilon is an edge's, and features are not protected: no code or sum over edges may stand
            beside it, only the same network before any sum.
    """

    name: str
    protocol: str
    candidates: tuple[Mapping[str, Any], ...] = ({},)
    defense: tuple[str, Mapping[str, Any]] = ("none", {})
    control: bool = False
    clear: bool = False
    edges: bool = False

    @property
    def epsilon(self) -> float:
        """What it spends on one node's features."""
        return math.inf if self.clear else float(self.defense[1].get("epsilon", 0.0))


CHOSEN_ON = {"cora": 3, "citeseer": 3, "pubmed": 1, "photo": 1}
"""On how many seeds' validation nodes a setting's candidates are compared: fewer where a training takes longer."""

HEADS: tuple[Mapping[str, Any], ...] = tuple(
    {"home_weight": home, "weight_decay": decay, "width": width, "hops": hops}
    for home, decay, width, hops in (
        (1.5, 1e-3, 512, (8, 16, 32)),
        (1.5, 1e-3, 512, (16, 32, 64)),
        (2.0, 1e-3, 512, (4, 8, 16)),
        (2.0, 3e-3, 256, (8, 16, 32)),
        (3.0, 1e-2, 256, (16, 32, 64)),
    )
)
"""Heads over propagated codes: the candidates of every setting that has one."""


def _reporting(head: Mapping[str, Any], hops: tuple[int, ...] = (4, 8, 16), **more: Any) -> Mapping[str, Any]:
    """Return the fields of ``private-reports`` that put reports, propagated by ``hops``, beside a head over codes."""
    return {**head, "hops": hops, "code_hops": head["hops"], **more}


_REPORTS: tuple[Mapping[str, Any], ...] = (
    *map(_reporting, HEADS),
    _reporting(HEADS[0], (8, 16)),
    _reporting(HEADS[0], report_weight=0.7),
)
"""The same heads beside propagated reports, and two other ways to weigh reports beside the first one."""

_BETTER = tuple(dict(_REPORTS[at], pseudo_labels=True) for at in (0, 4, 5))
_SELF_TRAINED = tuple(dict(HEADS[at], pseudo_labels=True) for at in (0, 4))


def _codes_alone(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of ``structure-only`` that make the same head as ``fields`` of ``private-reports``; rows of
    validation nodes do not train it."""
    left_out = ("hops", "code_hops", "report_weight", "pseudo_labels")
    same = {name: value for name, value in fields.items() if name not in left_out}
    return {**same, "hops": fields["code_hops"]}


_OPTIMIZERS: tuple[Mapping[str, Any], ...] = ({}, {"optimizer": "adam", "learning_rate": 0.01})
"""The class default is the paper's optimizer, which does not train on every data set."""
_SUMS = tuple({"hops": 1, "rounds": 100, **optimizer} for optimizer in _OPTIMIZERS)


_ATTENTION = ("gaussian", {"epsilon": 8.0, "on": "RawFeatures"})
_KPROP = tuple({**_SUMS[1], "smoothing_hops": hops} for hops in (16, 32))
"""LPGNN's multi-bit rows, propagated."""
_EDGES: tuple[Mapping[str, Any], ...] = tuple(
    {"hops": hops, "home_weight": home} for hops, home in (((1,), 1.0), ((1,), 3.0), ((1, 2), 3.0))
)
_TRUSTED = tuple({**one, "noise_at": "server"} for one in _EDGES)
_ROWS: tuple[Mapping[str, Any], ...] = tuple(
    {"hops": hops, "most_uses": 4, "home_weight": home, "unit": "reporting node"}
    for hops, home in (((4, 8, 16), 1.0), ((8, 16, 32), 1.0), ((4, 8, 16), 3.0))
)


def _embeddings(unit: str) -> tuple[str, Mapping[str, Any]]:
    return "gaussian", {"on": "EmbeddingSums", "unit": unit, "epsilon": 8.0}


def _noisy(epsilon: float, hops: tuple[int, ...]) -> Setting:
    candidates = tuple({**sums, "smoothing_hops": hop} for hop in hops for sums in _SUMS)
    words = "smoothed" if hops != (0,) else "as sent"
    return Setting(f"fedgcn, sums at {epsilon:g}, {words}", "fedgcn", candidates, ("gaussian", {"epsilon": epsilon}))


SETTINGS: tuple[Setting, ...] = (
    Setting("share nothing", "local-gcn", tuple({"rounds": 100, **one} for one in _OPTIMIZERS), control=True),
    Setting("models alone", "fedgcn", tuple({**sums, "hops": 0} for sums in _SUMS), control=True),
    Setting("label propagation", "label-propagation", control=True),
    Setting("codes, own row", "structure-only", HEADS, control=True),
    Setting(
        "codes, own subgraph",
        "structure-only",
        tuple({**head, "features_at_home": "own-subgraph"} for head in HEADS),
        control=True,
    ),
    Setting(REPORTED, "private-reports", _REPORTS, ("k-ary-response", {"epsilon": 4.0})),
    Setting(TWIN, "structure-only", tuple(map(_codes_alone, _REPORTS)), control=True),
    Setting("codes, own row, pseudo-labels", "structure-only", _SELF_TRAINED, control=True),
    Setting(
        "codes, own subgraph, pseudo-labels",
        "structure-only",
        tuple(dict(head, features_at_home="own-subgraph") for head in _SELF_TRAINED),
        control=True,
    ),
    Setting(BETTER, "private-reports", _BETTER, ("k-ary-response", {"epsilon": 4.0})),
    Setting(BETTER_TWIN, "structure-only", tuple(map(_codes_alone, _BETTER)), control=True),
    Setting("reports at 1", "private-reports", _REPORTS[:1], ("k-ary-response", {"epsilon": 1.0})),
    _noisy(8.0, (0,)),
    _noisy(8.0, (16, 32)),
    Setting("fedgat, rows at 8, as sent", "fedgat", defense=_ATTENTION),
    Setting(
        "fedgat, rows at 8, smoothed",
        "fedgat",
        tuple({"smoothing_hops": hops} for hops in (16, 32)),
        _ATTENTION,
    ),
    Setting("lpgnn, rows at 8", "fedgcn", _KPROP, ("multi-bit", {"epsilon": 8.0})),
    Setting("gap, rows at 8", "gap", _ROWS, _embeddings("reporting node")),
    Setting("gap, edges at 8", "gap", _EDGES, _embeddings("edge"), edges=True),
    Setting("gap, edges at 8, trusted server", "gap", _TRUSTED, _embeddings("edge"), edges=True),
    Setting("progap, edges at 8, trusted server", "progap", _TRUSTED, _embeddings("edge"), edges=True),
    Setting("reports, clear", "private-reports", _REPORTS[:1], clear=True),
    Setting("fedgcn, clear", "fedgcn", _SUMS, clear=True),
)


def run(results: Path, root: str | None, seeds: int, datasets: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Measure what is missing of ``settings`` (none: all) in ``frontier.csv``, then print the table."""
    table = Table(results / "frontier.csv", KEY, VALUES)
    for dataset in datasets:
        for seed in range(seeds):
            for setting in (one for one in SETTINGS if not settings or one.name in settings):
                chosen_for = _named(TWINS.get(setting.name, setting.name))
                index = choose(table, dataset, chosen_for, root, min(seeds, CHOSEN_ON[dataset]))
                measure(table, dataset, setting, index, "test", seed, partial(federated, dataset, root, seed))
        show(table, dataset)


def _named(name: str) -> Setting:
    return next(setting for setting in SETTINGS if setting.name == name)


def validated(dataset: str, root: str | None, seed: int, half: int | None = None) -> FederatedGraph:
    """Return the graph of ``seed``, tested on its validation nodes; on ``half`` 0 or 1 of them, which validate no more,
    if that is given."""
    graph = federated(dataset, root, seed)
    if half is None:
        return dataclasses.replace(graph, test=graph.val)
    drawn = torch.rand(graph.num_nodes, generator=derive(seed, "halves")) < 0.5
    asked = [drawn[nodes] == bool(half) for nodes in graph.clients]
    test = tuple(val & mine for val, mine in zip(graph.val, asked, strict=True))
    return dataclasses.replace(
        graph, test=test, val=tuple(val & ~mine for val, mine in zip(graph.val, asked, strict=True))
    )


@lru_cache(maxsize=2)
def federated(dataset: str, root: str | None, seed: int) -> FederatedGraph:
    """Return the data split over 10 clients, evenly."""
    spec = DatasetSpec(dataset, root=root, split="random-shared" if dataset == "photo" else "public")
    whole = spec.load()
    if dataset == "photo":
        whole, spec = with_masks(whole, derive(seed, "masks")), DatasetSpec("cora", root=root)
    return PartitionSpec("dirichlet", clients=10, beta=10000.0).apply(whole, spec, derive(seed, "partition"))


def with_masks(graph: Graph, rng: torch.Generator) -> Graph:
    """Return ``graph`` with a public split: some nodes per class for training and validation, all others for tests."""
    order = torch.randperm(graph.num_nodes, generator=rng)
    order = order[torch.argsort(graph.y[order], stable=True)]
    sizes = torch.bincount(graph.y, minlength=graph.num_classes)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[graph.y[order]]
    train, seen = rank < PER_CLASS, rank < PER_CLASS + VALIDATING
    return dataclasses.replace(graph, train=train, val=seen & ~train, test=~seen)


def choose(table: Table, dataset: str, setting: Setting, root: str | None, seeds: int) -> int:
    """Return which candidate is best on the validation nodes of ``seeds`` splits; the first of equal ones."""
    if len(setting.candidates) == 1:
        return 0
    halves = (0, 1) if setting.candidates[0].get("pseudo_labels") else (None,)
    parts = {half: "validation" if half is None else f"validation, half {half}" for half in halves}
    for seed in range(seeds):
        for index in range(len(setting.candidates)):
            for half, nodes in parts.items():
                graph = partial(validated, dataset, root, seed, half)
                measure(table, dataset, setting, index, nodes, seed, graph)
    scores = [0.0] * len(setting.candidates)
    for row in table.rows():
        if (row["dataset"], row["setting"]) == (dataset, setting.name) and row["nodes"] in parts.values():
            scores[int(row["candidate"])] += float(row["accuracy"]) if int(row["seed"]) < seeds else 0
    return scores.index(max(scores))


def measure(
    table: Table,
    dataset: str,
    setting: Setting,
    index: int,
    nodes: str,
    seed: int,
    graph: Callable[[], FederatedGraph],
) -> None:
    """Add one row unless it is there."""
    key = {"dataset": dataset, "setting": setting.name, "candidate": index, "nodes": nodes, "seed": seed}
    if table.has(key):
        return
    data = graph()
    start = time.process_time()
    protocol: FederatedProtocol = build("protocol", setting.protocol, setting.candidates[index])
    defense: Defense = build("defense", *setting.defense)
    found = trained(protocol, defense.bind(protocol.context(data)), data, seed)
    accuracy, encoder = found.whole_test_set, _encoded_after(protocol)
    before = "" if encoder is None else f"{float(found.accuracy_global[encoder - 1]):.6f}"
    seconds = time.process_time() - start
    table.add(
        {
            **key,
            "accuracy": accuracy,
            **chance(data),
            "epsilon": setting.epsilon,
            "seconds": f"{seconds:.2f}",
            "before": before,
        }
    )
    print(*key.values(), f"{100 * accuracy:.1f} % in {seconds:.1f} s", flush=True)


def _encoded_after(protocol: FederatedProtocol) -> int | None:
    """Return the round after which the encoder's accuracy was measured, None where there is no encoder."""
    found: int | None = getattr(protocol, "reported_after", getattr(protocol, "encoder_rounds", None))
    return found


def trained(protocol: FederatedProtocol, session: DefenseSession, graph: FederatedGraph, seed: int) -> Trained:
    """Train with codes that follow ``seed``."""
    if any(f.name == "code_seed" for f in dataclasses.fields(protocol)):  # type: ignore[arg-type]
        protocol = dataclasses.replace(protocol, code_seed=seed)  # type: ignore[type-var]
    channel = RecordingChannel(session, graph.num_clients, derive(seed, "defense"))
    return protocol.train(graph, channel, rng=derive(seed, "train"), device=torch.device("cpu"))


def show(table: Table, dataset: str) -> None:
    """Print one data set's table in Markdown."""
    rows = [row for row in table.rows() if row["dataset"] == dataset and row["nodes"] == "test"]
    measured = [
        Measured(
            setting.name,
            {int(row["seed"]): float(row["accuracy"]) for row in rows if row["setting"] == setting.name},
            setting.epsilon,
            setting.control,
        )
        for setting in SETTINGS
    ]
    measured.append(_before(rows, REPORTED, OWN_ROW_ALONE))
    measured.append(_before(rows, BETTER, f"{OWN_ROW_ALONE}, pseudo-labels"))
    chance = 100 * sum(float(row["chance"]) for row in rows) / max(1, len(rows))
    over_edges = {setting.name for setting in SETTINGS if setting.edges}
    print(f"\n{dataset}, chance {chance:.1f} %\n\n| setting | epsilon | seeds | accuracy | bought | seconds |")
    print("|---|---|---|---|---|---|")
    for one in measured:
        if not one.accuracy:
            continue
        gain = bought(one, [_before(rows, one.name)] if one.name in over_edges else measured)
        words = "control" if one.control else gain.words if gain is not None else "no control"
        spent = "in the clear" if math.isinf(one.epsilon) else f"{one.epsilon:g}"
        spent += " (an edge)" if one.name in over_edges else ""
        seconds = [float(row["seconds"]) for row in rows if row["setting"] == one.name]
        took = f"{sum(seconds) / len(seconds):.1f}" if seconds else ""
        print(f"| {one.name} | {spent} | {len(one.accuracy)} | {100 * one.mean:.1f} | {words} | {took} |")
    by_name = {one.name: one for one in measured}
    for twin, name in TWINS.items():
        own = _before(rows, name, OWN_ROW_ALONE)
        for control in (by_name[twin], by_name["codes, own row"], own):
            if (gain := bought(by_name[name], [control])) is not None:
                print(f"\n{name}: {gain.words}")


def _before(rows: Sequence[Mapping[str, str]], setting: str, name: str = "the same network before any sum") -> Measured:
    """Return what the network of ``setting`` reached on own rows, before anything was sent but models."""
    before = {int(row["seed"]): float(row["before"]) for row in rows if row["setting"] == setting and row["before"]}
    return Measured(name, before, 0.0, control=True)
