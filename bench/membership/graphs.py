"""What shadow models tell of nodes and edges that were in the training graph or not: LiRA on overfitted GCNs on Cora.

The models are those of ``python -m bench membership``, each on a graph of its own; pairs of models share out the
candidates, and every model serves once as the target, attacked with the others but its partner.

Case ``inductive nodes``: a node is in training with its row, its label and its edges, or not at all. The attacker
evaluates models on the whole graph. Case ``edges``: half of the nodes train in every model, known to all; each model's
graph has half of the edges. An edge (i, j) is asked of a model by what joining two nodes does to it: the confidence in
their labels on the graph of these two alone, with the edge less without it. Controls: the loss (edges: that gain)
without shadow models, and for edges the cosine of the two rows.

``membership_graphs.csv`` has a row per target. ``python -m bench membership-graphs``.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bench.membership.nodes import KEY, SETTINGS, VALUES, complementary_members, figures, lines
from fglaudit.attacks.models.likelihood_ratio import offline_score, online_score, scaled_confidence
from fglaudit.attacks.models.link_scores import directions
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import Graph
from fglaudit.nn.gcn_ensemble import (
    EnsembleSettings,
    OwnGraphs,
    SharedGraph,
    ensemble_logits,
    train_ensemble,
)
from fglaudit.nn.weights import gcn_layout, unflatten
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive

MODELS = 32
ATTACKS = {
    "inductive nodes": ("loss", "lira-offline", "lira-online"),
    "edges": ("similarity", "gain", "lira-offline", "lira-online"),
}


class Asked(NamedTuple):
    """What is known of the candidates c under M models.

    Attributes:
        statistic: of every model [M, c].
        members: which of them had which candidate in training [M, c].
        similarity: of the rows of an edge's ends [c]; empty for nodes.
    """

    statistic: Tensor
    members: Tensor
    similarity: Tensor


def of_nodes(graph: Graph, models: int, settings: EnsembleSettings, seed: int) -> Asked:
    """Train models of which each knows half of the nodes, and nothing of the others."""
    members = complementary_members(
        torch.arange(graph.num_nodes), graph.num_nodes, models // 2, derive(seed, "membership", "inductive")
    )
    row, column = graph.edge_index
    own = OwnGraphs.of(graph.x, graph.edge_index, members[:, row] & members[:, column])
    layout = gcn_layout(graph.num_features, settings.hidden, graph.num_classes, settings.layers)
    vectors = train_ensemble(own, layout, graph.y, members, settings, derive(seed, "membership", "inductive train"))
    logits = ensemble_logits(SharedGraph.of(graph.x, graph.edge_index), unflatten(vectors, layout))
    return Asked(scaled_confidence(logits, graph.y), members, torch.empty(0))


def of_edges(graph: Graph, models: int, settings: EnsembleSettings, seed: int) -> Asked:
    """Train models of which each has half of the edges."""
    forward = graph.edge_index[0] < graph.edge_index[1]
    edges = graph.edge_index[:, forward]
    chosen = complementary_members(
        torch.arange(edges.shape[1]), edges.shape[1], models // 2, derive(seed, "membership", "edges")
    )
    both, kept = torch.cat([edges, edges.flip(0)], 1), torch.cat([chosen, chosen], 1)
    trained = torch.rand(graph.num_nodes, generator=derive(seed, "membership", "edge labels")) < 0.5
    layout = gcn_layout(graph.num_features, settings.hidden, graph.num_classes, settings.layers)
    vectors = train_ensemble(
        OwnGraphs.of(graph.x, both, kept),
        layout,
        graph.y,
        trained.expand(models, -1),
        settings,
        derive(seed, "membership", "edges train"),
    )
    part = directions(graph.x.float())
    return Asked(gain(unflatten(vectors, layout), graph, edges), chosen, (part[edges[0]] * part[edges[1]]).sum(1))


def gain(weights: dict[str, Tensor], graph: Graph, edges: Tensor) -> Tensor:
    """Return by how much an edge raises the confidence in its ends' labels [M, E], on the graph of these two nodes."""
    first, second = weights.values()
    rows = graph.x.float() @ first  # [M, N, H]
    alone = scaled_confidence(torch.relu(rows) @ second, graph.y)
    one, two = edges
    joined = torch.relu((rows[:, one] + rows[:, two]) / 2) @ second
    ends = [scaled_confidence(joined, graph.y[end]) - alone[:, end] for end in (one, two)]
    return ends[0] + ends[1]


def scores(asked: Asked, target: int, attack: str) -> tuple[Tensor, Tensor]:
    """Return the scores of the candidates by ``attack`` on the model ``target``, members and others apart."""
    rest = torch.tensor([m for m in range(len(asked.statistic)) if m // 2 != target // 2])
    if attack in ("loss", "gain"):
        found = asked.statistic[target]
    elif attack == "similarity":
        found = asked.similarity
    else:
        ratio = online_score if attack == "lira-online" else offline_score
        found = ratio(asked.statistic[target], asked.statistic[rest], asked.members[rest])
    return found[asked.members[target]], found[~asked.members[target]]


def run(
    results: Path,
    root: str | None,
    name: str = "cora",
    settings: EnsembleSettings = SETTINGS,
    models: int = MODELS,
) -> None:
    """Measure what is missing, then print means and 95 % intervals over target models."""
    table = Table(results / "membership_graphs.csv", KEY, VALUES)
    for case, attacks in ATTACKS.items():
        missing = [
            (attack, target)
            for attack, target in itertools.product(attacks, range(models))
            if not table.has({"dataset": name, "case": case, "attack": attack, "target": target})
        ]
        if not missing:
            continue
        graph = DatasetSpec(name=name, root=root).load()
        asked = (of_nodes if case == "inductive nodes" else of_edges)(graph, models, settings, 0)
        for attack, target in missing:
            key = {"dataset": name, "case": case, "attack": attack, "target": target}
            table.add({**key, **figures(*scores(asked, target, attack))})
    for line in lines(table):
        print(line)
