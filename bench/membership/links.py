"""What a trained GCN tells of the edges it was trained on: Cora, CiteSeer, Chameleon.

A 2-layer GCN is trained on half of the nodes. Three observers know all rows and no edge: ``model`` has the weights
(attack model-links), ``predictions`` gets every node's prediction by a service that holds the graph and ranks pairs by
how alike they are, ``influence`` asks that service for predictions on rows of its own, 50 nodes scaled in turn. The
control ranks the same pairs by the cosine of their rows. The service is no message of a protocol: no suite runs the
latter two. AUC of edges against 200,000 random other pairs; for ``influence`` all pairs with one of the 50 nodes.

``links.csv`` has a row per data set, observer and seed. ``python -m bench links``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.attacks.models.link_scores import directions
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import Graph, positions
from fglaudit.nn.gcn_ensemble import EnsembleSettings, SharedGraph, ensemble_logits, train_ensemble
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import gcn_layout, unflatten
from fglaudit.quantities.ranking import placements
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

DATASETS = ("cora", "citeseer", "chameleon")
SETTINGS = EnsembleSettings(hidden=16, steps=100, learning_rate=0.01, weight_decay=5e-4, dropout=0.5)
KEY = ("dataset", "observer", "seed")
VALUES = ("auc", "control")
SEEDS = 3
OTHER_PAIRS = 200_000
ASKED = 50
AT_ONCE = 10_000


class Trained(NamedTuple):
    """A trained GCN on its graph; ``weights`` by layer [1, in, out], ``adjacency`` as the GCN uses it."""

    graph: Graph
    weights: dict[str, Tensor]
    adjacency: SparseMatrix

    def predict(self, rows: Tensor) -> Tensor:
        """Return what the service answers to ``rows`` [N, F]: log probabilities [N, C]."""
        return ensemble_logits(SharedGraph(rows, self.adjacency), self.weights)[0].log_softmax(1)


def train(graph: Graph, seed: int, settings: EnsembleSettings) -> Trained:
    """Return a GCN that was trained on half of the nodes, drawn by ``seed``."""
    members = torch.rand(1, graph.num_nodes, generator=derive(seed, "links", "members")) < 0.5
    members &= graph.y >= 0
    layout = gcn_layout(graph.num_features, settings.hidden, graph.num_classes, settings.layers)
    shared = SharedGraph.of(graph.x, graph.edge_index)
    vectors = train_ensemble(shared, layout, graph.y.clamp(min=0), members, settings, derive(seed, "links", "train"))
    return Trained(graph, dict(unflatten(vectors, layout)), shared.adjacency)


def by_model(trained: Trained, seed: int) -> tuple[float, float]:
    """Return the AUC of an observer of the weights, and of its control."""
    rows, first = trained.graph.x.float(), next(iter(trained.weights.values()))[0]
    plain, mapped = directions(rows), directions(rows @ first)
    pairs = _pairs(trained.graph, seed)
    cosines = [[_cosines(part, a, b) for a, b in pairs] for part in (plain, mapped)]
    units = [torch.cat(both).square().mean().sqrt() for both in cosines]
    both = [sum((c[i] / unit for c, unit in zip(cosines, units, strict=True)), torch.zeros(())) for i in range(2)]
    return _auc(*both), _auc(*cosines[0])


def by_predictions(trained: Trained, seed: int) -> tuple[float, float]:
    """Return the AUC of an observer of every node's prediction, and of its control."""
    rows = trained.graph.x.float()
    parts = directions(trained.predict(rows).exp()), directions(rows)
    pairs = _pairs(trained.graph, seed)
    found, control = ([_cosines(part, a, b) for a, b in pairs] for part in parts)
    return _auc(*found), _auc(*control)


def influences(predict: Callable[[Tensor], Tensor], rows: Tensor, nodes: Tensor, step: float = 1e-3) -> Tensor:
    """Return how much every node's prediction moves with the rows of ``nodes`` [q], as [q, N].

    Algorithm 1 of Wu et al., "LinkTeller" (S&P 2022).

    Args:
        predict: from rows [N, F] to predictions [N, C]; it is asked q + 1 times.
        step: by which share a row is made larger.
    """
    before = predict(rows).double()
    found = []
    for node in nodes.tolist():  # every question is one more call of the service
        asked = rows.clone()
        asked[node] *= 1 + step
        found.append((predict(asked).double() - before).norm(dim=1) / step)
    return torch.stack(found)


def by_influence(trained: Trained, seed: int) -> tuple[float, float]:
    """Return the AUC of an observer that asks for predictions on rows of its own, and of its control."""
    graph, rows = trained.graph, trained.graph.x.float()
    connected = graph.degrees().nonzero().squeeze(1)
    nodes = connected[torch.randperm(len(connected), generator=derive(seed, "links", "asked"))[:ASKED]]
    moved = influences(trained.predict, rows, nodes)
    part = directions(rows)
    near = torch.zeros(len(nodes), graph.num_nodes, dtype=torch.bool)
    position = positions(nodes, graph.num_nodes)
    row, column = graph.edge_index
    near[position[row[position[row] >= 0]], column[position[row] >= 0]] = True
    other = ~near
    other[torch.arange(len(nodes)), nodes] = False
    alike = part[nodes] @ part.T
    return _auc(moved[near], moved[other]), _auc(alike[near], alike[other])


OBSERVERS: dict[str, Callable[[Trained, int], tuple[float, float]]] = {
    "model": by_model,
    "predictions": by_predictions,
    "influence": by_influence,
}


def _pairs(graph: Graph, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the edges, each once, and random pairs that are none."""
    row, column = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    first, second = torch.randint(graph.num_nodes, (2, OTHER_PAIRS), generator=derive(seed, "links", "pairs"))
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    none = (low < high) & ~torch.isin(low * graph.num_nodes + high, row * graph.num_nodes + column)
    return (row, column), (low[none], high[none])


def _cosines(part: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the products of the rows ``first`` and ``second`` [S] of ``part`` [N, d], some at a time."""
    places = zip(torch.split(first, AT_ONCE), torch.split(second, AT_ONCE), strict=True)
    return torch.cat([(part[a] * part[b]).sum(1) for a, b in places])


def _auc(positive: Tensor, negative: Tensor) -> float:
    return float(placements(positive, negative).mean().item())


def run(
    results: Path, root: str | None, datasets: tuple[str, ...] = DATASETS, settings: EnsembleSettings = SETTINGS
) -> None:
    """Measure what is missing, then print means over seeds."""
    table = Table(results / "links.csv", KEY, VALUES)
    for name in datasets:
        missing = [
            (seed, observer)
            for seed in range(SEEDS)
            for observer in OBSERVERS
            if not table.has({"dataset": name, "observer": observer, "seed": seed})
        ]
        graph = DatasetSpec(name=name, root=root).load() if missing else None
        for seed in dict.fromkeys(seed for seed, _ in missing):
            assert graph is not None
            trained = train(graph, seed, settings)
            for observer in (o for s, o in missing if s == seed):
                auc, control = OBSERVERS[observer](trained, seed)
                key = {"dataset": name, "observer": observer, "seed": seed}
                table.add({**key, "auc": f"{auc:.5f}", "control": f"{control:.5f}"})
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table.rows():
        groups.setdefault((row["dataset"], row["observer"]), []).append(row)
    for group, rows in groups.items():
        auc, control = (statistics.fmean(float(row[column]) for row in rows) for column in VALUES)
        least, most = (pick(float(row["auc"]) for row in rows) for pick in (min, max))
        print(*group, f"{len(rows)} seeds AUC {auc:.4f} ({least:.4f} to {most:.4f}) control {control:.4f}")
