"""Which client holds a node: subjects are pairs (client, node) [S, 2], an estimate is a score [S] (higher: likelier).

Asked about are all pairs of a client that is not observing and an auxiliary node, whose features the observer knows but
not where it lies. The metric is the area under the ROC curve. A guess says the same of every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from fglaudit.interfaces import Attack
from fglaudit.quantities.base import Attempt, Comparison, ObserverTruth, Question
from fglaudit.quantities.ranking import RankedQuantity


class NodeOwner(RankedQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "node-owner"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph, nodes = truth.graph, truth.auxiliary.nodes
        others = truth.others()
        if len(nodes) == 0:
            return "owners are asked of rows the observer knows; give it some, e.g. auxiliary: 0.1"
        if len(others) < 2:
            return "with fewer than two other clients there is nothing to tell apart"
        subjects = torch.cartesian_prod(others, nodes)
        held = torch.stack([torch.isin(nodes, graph.clients[k]) for k in others.tolist()]).flatten()
        if not bool(held.any()) or bool(held.all()):
            return "every other client holds all of the auxiliary nodes, or none does"
        ids = zip(graph.clients, graph.train, strict=True)
        trained = torch.isin(subjects[:, 1], torch.cat([nodes[mask] for nodes, mask in ids]))
        return Question(subjects, held.double(), truth.clusters_of(subjects[:, 0]), training=trained)

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        """Also tell training nodes, whose labels clients learn from, from the others that they hold."""
        compared = super().compare(attack, attempts)
        asked = [each.question for each in attempts]
        parts = [question.training[question.truth > 0] for question in asked if question.training is not None]
        trained = torch.cat(parts) if len(parts) == len(asked) else torch.empty(0, dtype=torch.bool)
        groups = {"in training": trained, "not in training": ~trained}
        shares = compared.among(groups)
        return replace(compared, breakdown={"nodes of the client": shares} if shares else {})
