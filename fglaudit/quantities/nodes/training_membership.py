"""Whether a node's label was trained on: subjects are node ids [S], an estimate is a score [S] (higher: likelier).

Asked about are the auxiliary nodes with a label that belong to clients that are not observing: the observer knows their
rows and labels, not whether they are training nodes. The metric is the area under the ROC curve; ``tpr_at_fpr_1`` and
``tpr_at_fpr_01`` are the shares of training nodes found at 1 % and 0.1 % false ones, empty where there are fewer than
100 and 1000 other nodes; ``tpr_at_fpr_1_low`` and ``_high`` are a 95 % interval of the former. A guess says the same of
every node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from fglaudit.interfaces import Attack
from fglaudit.quantities.base import Attempt, Comparison, ObserverTruth, Question
from fglaudit.quantities.ranking import (
    RankedQuantity,
    found_interval,
)
from fglaudit.rng import derive

RATES = {"tpr_at_fpr_1": 0.01, "tpr_at_fpr_01": 0.001}


class TrainingMembership(RankedQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "training-membership"
    rates: ClassVar[Mapping[str, float]] = RATES

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph, known = truth.graph, truth.auxiliary
        if graph.y.dim() > 1:
            return "membership of single samples is not inferred: a node here has several"
        nodes = known.nodes[truth.held_by_others(known.nodes) & (known.y >= 0)]
        if len(nodes) == 0:
            return "membership in training is asked of rows the observer knows; give it some, e.g. auxiliary: 0.5"
        trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for ids, mask in zip(graph.clients, graph.train, strict=True):
            trained[ids[mask]] = True
        member = trained[nodes]
        if not bool(member.any()) or bool(member.all()):
            found = "none" if not bool(member.any()) else "all"
            return (
                f"{found} of the {len(nodes)} labelled nodes it knows are training nodes; give it more auxiliary rows"
            )
        return Question(nodes, member.double(), truth.clusters(nodes))

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        compared = super().compare(attack, attempts)
        if "tpr_at_fpr_1" not in compared.columns:
            return compared
        groups = []
        for _, question, result, guess in attempts:
            estimate, member = self.estimated(question, result, guess).double(), question.truth > 0
            groups.append((estimate[member], estimate[~member]))
        low, high = found_interval(groups, RATES["tpr_at_fpr_1"], derive(0, "rates of members found"))
        return replace(compared, columns={**compared.columns, "tpr_at_fpr_1_low": low, "tpr_at_fpr_1_high": high})
