"""Labels of nodes: subjects are node ids [S], an estimate is class scores [S, C], the metric is top-1 accuracy.

Asked about are all nodes of which the observer holds no row and no label. The guess spreads the labels it does know
over the edges it knows (label propagation); without edges every node gets the most frequent class.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.view import View


class Labels(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "labels"
    metric: ClassVar[str] = "label_accuracy"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        if graph.y.dim() > 1:
            return "labels of single samples are not inferred: a node here has several"
        subjects = truth.strangers()
        given = truth.protocol.labelled(graph, truth.observer)
        subjects = subjects[(graph.y[subjects] >= 0) & ~torch.isin(subjects, given)]
        if len(subjects) == 0:
            return "the observer holds every label already"
        return Question(subjects, graph.y[subjects], truth.clusters(subjects))

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, propagate_labels(view, subjects))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return Scores((estimate.argmax(1) == question.truth).double(), question.clusters, {})
