"""What shadow models tell of an overfitted GCN's training nodes: LiRA, RMIA and the loss threshold on Cora.

Models are 2-layer GCNs that train as one batch, without dropout and weight decay until they know their nodes by heart.
Half of the candidates train in each; pairs of models share the candidates out, and every model serves once as the
target, attacked with the others but its partner (which would show by its absence who is missing). Case ``all``: every
node is a candidate. Case ``population``: a tenth of the nodes is in no loss and serves RMIA, which takes one other pair
as its two references.

``membership.csv`` has a row per target, ``membership_roc.csv`` the mean curve, ``membership_cost.csv`` the seconds of
training, and ``membership-roc.svg`` is docs/membership-roc.svg. ``python -m bench membership``.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from scipy.stats import t as student
from torch import Tensor

from bench.membership.roc_figure import draw
from fglaudit.attacks.models.likelihood_ratio import (
    log_chance,
    offline_score,
    online_score,
    relative_score,
    scaled_confidence,
)
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import Graph
from fglaudit.nn.gcn_ensemble import (
    EnsembleSettings,
    SharedGraph,
    ensemble_logits,
    train_ensemble,
)
from fglaudit.nn.weights import gcn_layout, unflatten
from fglaudit.quantities.ranking import found_at, placements, require_negatives
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

SETTINGS = EnsembleSettings(hidden=16, layers=2, steps=100, learning_rate=0.01, weight_decay=0.0, dropout=0.0)
RATES = {"tpr_at_fpr_1": 0.01, "tpr_at_fpr_01": 0.001}
CURVE = tuple(10 ** (-3 + 0.15 * i) for i in range(21))
"""False-positive rates of the curve, 0.1 % to 100 %."""


class Case(NamedTuple):
    """Which models are trained.

    Attributes:
        population: share of the nodes outside of every loss.
        models: trained as one batch; every one serves as the target.
        attacks: that are measured.
    """

    population: float
    models: int
    attacks: tuple[str, ...]


CASES = {
    "all": Case(0.0, 32, ("loss", "lira-online", "lira-offline")),
    "population": Case(0.1, 32, ("loss", "rmia", "lira-online")),
    "all, 64 models": Case(0.0, 64, ("loss", "lira-online", "lira-offline")),
}
KEY = ("dataset", "case", "attack", "target")
VALUES = ("auc", *RATES)
CURVE_KEY = ("dataset", "case", "attack", "fpr")
COST_KEY = ("dataset", "case")


class Models(NamedTuple):
    """Trained models on one graph.

    Attributes:
        logits: [M, N, C].
        members: [M, N].
        labels: [N].
        candidates, population: node ids [c] and [p].
    """

    logits: Tensor
    members: Tensor
    labels: Tensor
    candidates: Tensor
    population: Tensor


def complementary_members(candidates: Tensor, num_nodes: int, pairs: int, rng: torch.Generator) -> Tensor:
    """Return whom each of ``2 pairs`` models trains on [2 pairs, N]: rows 2j and 2j + 1 share out the ``candidates``
    [c], half each, so that every candidate is a member of exactly one of the two; nobody else is a member."""
    members = torch.zeros(2 * pairs, num_nodes, dtype=torch.bool)
    for pair in range(pairs):
        order = candidates[torch.randperm(len(candidates), generator=rng)]
        for model, part in enumerate(itertools.islice(torch.tensor_split(order, 2), 2)):
            members[2 * pair + model, part] = True
    return members


def train(graph: Graph, case: Case, settings: EnsembleSettings, seed: int) -> Models:
    """Return the models of ``case`` on ``graph``."""
    order = torch.randperm(graph.num_nodes, generator=derive(seed, "membership", "population"))
    outside = round(case.population * graph.num_nodes)
    population, candidates = order[:outside], order[outside:].sort().values
    members = complementary_members(
        candidates, graph.num_nodes, case.models // 2, derive(seed, "membership", "members")
    )
    layout = gcn_layout(graph.num_features, settings.hidden, graph.num_classes, settings.layers)
    shared = SharedGraph.of(graph.x, graph.edge_index)
    vectors = train_ensemble(shared, layout, graph.y, members, settings, derive(seed, "membership", "train"))
    logits = ensemble_logits(shared, unflatten(vectors, layout))
    return Models(logits, members, graph.y, candidates, population)


def scores(models: Models, target: int, attack: str) -> tuple[Tensor, Tensor]:
    """Return the scores of the candidates by ``attack`` on the model ``target``, members and others apart."""
    nodes, member = models.candidates, models.members[target, models.candidates]
    pair = target // 2
    rest = torch.tensor([m for m in range(len(models.logits)) if m // 2 != pair])
    if attack == "rmia":
        other = 2 * ((pair + 1) % (len(models.logits) // 2))
        references = models.logits[[other, other + 1]]
        chances = [log_chance(part, models.labels) for part in (models.logits[target], references)]
        mine, usual = chances
        found = relative_score(mine[nodes], usual[:, nodes], mine[models.population], usual[:, models.population])
    else:
        confidence = scaled_confidence(models.logits[:, nodes], models.labels[nodes])
        if attack == "loss":
            found = confidence[target]
        else:
            ratio = online_score if attack == "lira-online" else offline_score
            found = ratio(confidence[target], confidence[rest], models.members[rest][:, nodes])
    return found[member], found[~member]


def figures(positive: Tensor, negative: Tensor) -> dict[str, str]:
    """Return the values of a row.

    Raises:
        FglauditError: there are too few others for a rate; names how many it takes.
    """
    for rate in RATES.values():
        require_negatives(len(negative), rate)
    found = {name: float(found_at(positive, negative, rate).mean().item()) for name, rate in RATES.items()}
    return {
        name: f"{v:.5f}" for name, v in {"auc": float(placements(positive, negative).mean().item()), **found}.items()
    }


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return mean and 95 % t-interval over target models."""
    mean = statistics.fmean(values)
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def run(results: Path, root: str | None, name: str = "cora", settings: EnsembleSettings = SETTINGS) -> None:
    """Measure what is missing, then print and draw all."""
    table = Table(results / "membership.csv", KEY, VALUES)
    curves = Table(results / "membership_roc.csv", CURVE_KEY, ("tpr",))
    cost = Table(results / "membership_cost.csv", COST_KEY, ("models", "threads", "seconds", "cpu_seconds"))
    for label, case in CASES.items():
        missing = [
            (attack, target)
            for attack, target in itertools.product(case.attacks, range(case.models))
            if not table.has({"dataset": name, "case": label, "attack": attack, "target": target})
        ]
        undrawn = [a for a in case.attacks if not all(curves.has(_point(name, label, a, fpr)) for fpr in CURVE)]
        if not missing and not undrawn:
            continue
        graph = DatasetSpec(name=name, root=root).load()
        wall, work = time.monotonic(), time.process_time()
        models = train(graph, case, settings, 0)
        spent = {"seconds": f"{time.monotonic() - wall:.1f}", "cpu_seconds": f"{time.process_time() - work:.1f}"}
        if not cost.has({"dataset": name, "case": label}):
            threads = torch.get_num_threads()
            cost.add({"dataset": name, "case": label, "models": case.models, "threads": threads, **spent})
        for attack, target in missing:
            key = {"dataset": name, "case": label, "attack": attack, "target": target}
            table.add({**key, **figures(*scores(models, target, attack))})
        for attack in undrawn:
            found = [scores(models, target, attack) for target in range(case.models)]
            for fpr in CURVE:
                mean = statistics.fmean(float(found_at(p, n, fpr).mean().item()) for p, n in found)
                if not curves.has(_point(name, label, attack, fpr)):
                    curves.add({**_point(name, label, attack, fpr), "tpr": f"{mean:.5f}"})
    for line in lines(table):
        print(line)
    for row in cost.rows():
        print(*row.values())
    (results / "membership-roc.svg").write_text(draw(_curves(curves.rows()), "Overfitted 2-layer GCN on Cora"))


def _point(name: str, label: str, attack: str, fpr: float) -> dict[str, object]:
    return {"dataset": name, "case": label, "attack": attack, "fpr": f"{fpr:.5f}"}


def _curves(rows: list[dict[str, str]]) -> Mapping[str, list[tuple[float, float]]]:
    """Return the curves of the figure by name: those of 32 models, the loss threshold's once."""
    wanted = {
        ("all", "lira-online"): "LiRA online",
        ("all", "lira-offline"): "LiRA offline",
        ("population", "rmia"): "RMIA, 2 references",
        ("all", "loss"): "loss threshold",
    }
    return {
        title: [(float(r["fpr"]), float(r["tpr"])) for r in rows if (r["case"], r["attack"]) == key]
        for key, title in wanted.items()
    }


def lines(table: Table) -> Iterator[str]:
    """Yield a line per data set, case and attack: means and 95 % intervals over target models."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in table.rows():
        groups.setdefault((row["dataset"], row["case"], row["attack"]), []).append(row)
    for key, rows in groups.items():
        texts = []
        for column in VALUES if len(rows) > 1 else ():
            mean, low, high = interval([float(row[column]) for row in rows])
            texts.append(f"{column} {mean:.4f} [{low:.4f}, {high:.4f}]")
        yield " ".join([", ".join(key) + f": {len(rows)} targets", *texts])
