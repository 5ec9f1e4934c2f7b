"""Sensitive attributes of known nodes: subjects are pairs (node, column) [S, 2], an estimate is a score [S], the higher
the likelier that the entry is high: not zero, for real-valued features above the column's median.

Asked about are the nodes of others whose rows the observer knows but for the columns that it calls sensitive. The
metric is the area under the ROC curve within each column; ``tpr_at_fpr_1`` is the share of high entries found at 1 %
false ones, empty where a column has fewer than 100 others. The guess is imputation
(:mod:`fglaudit.adversary.priors.imputation`): what the rest of the row, the label and the neighbours say already.
Attribute inference that is not held against it mistakes correlation for leakage (Jayaraman and Evans, CCS 2022).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.imputation import imputed
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.quantities.negatives import Negatives
from fglaudit.quantities.ranking import against, enough_negatives, found_at, placements
from fglaudit.view import View

_RATE = 0.01


class Attributes(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "attributes"
    metric: ClassVar[str] = "auc"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph, partial = truth.graph, truth.partial
        if partial is None:
            return (
                "attributes are asked of rows that the observer knows in part; name columns that it lacks in some, e.g."
                " sensitive: [0] beside auxiliary: 0.5"
            )
        if graph.x.dim() != 2:
            return "a node has several feature rows, one per sample"
        if graph.features is FeatureKind.SCALED_BINARY:
            return "rows that are scaled to a sum of 1 show in their other entries what is missing"
        nodes, parts = partial.nodes[truth.held_by_others(partial.nodes)], []
        for column in partial.columns.tolist():  # few
            values = graph.x[:, column]
            high = values[nodes] > values.median() if graph.features is FeatureKind.REAL else values[nodes] != 0
            if bool(high.any()) and not bool(high.all()):
                parts.append((torch.stack([nodes, torch.full_like(nodes, column)], 1), high.double()))
        if not parts:
            return "no sensitive column has both high and low entries in the rows that the observer knows in part"
        subjects = torch.cat([pairs for pairs, _ in parts])
        return Question(subjects, torch.cat([high for _, high in parts]), truth.clusters(subjects[:, 0]))

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        found, partial = imputed(view), view.partial
        assert partial is not None  # see ask
        row = torch.searchsorted(partial.nodes, subjects[:, 0].contiguous())
        column = torch.searchsorted(partial.columns, subjects[:, 1].contiguous())
        return Inference(self.name, subjects, found.values[row, column])

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        values, hits, clusters, others = [], [], [], []
        for column in torch.unique(question.subjects[:, 1]).tolist():
            here = question.subjects[:, 1] == column
            high = question.truth[here] > 0
            positive, negative = estimate[here][high].double(), estimate[here][~high].double()
            values.append(placements(positive, negative))
            clusters.append(question.clusters[here][high])
            others.append(against(positive, negative, question.clusters[here][~high]))
            if enough_negatives(len(negative), _RATE):
                hits.append(found_at(positive, negative, _RATE))
        joint = torch.cat(values)
        columns = {"auc": float(joint.mean().item())}
        if len(hits) == len(values):
            columns["tpr_at_fpr_1"] = float(torch.cat(hits).mean().item())
        return Scores(joint, torch.cat(clusters), columns, Negatives.joined(others))
