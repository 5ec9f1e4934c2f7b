"""Labels of nodes: subjects are node ids [S], an estimate is a row of class scores [S, C], the metric is how often the top one is right.

Asked about are all nodes of which the observer holds no row and no label. The guess spreads the labels it does know over the edges it
knows (label propagation); without edges every node gets the most frequent class.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks._recorded_sums import known_edges
from fglaudit.interfaces import Inference
from fglaudit.quantities.base import Facts, Quantity, Question, Scores
from fglaudit.view import View

_STEPS = 30
_DAMPING = 0.9


class Labels(Quantity):
    """See the module docstring."""

    name: ClassVar[str] = "labels"
    metric: ClassVar[str] = "label_accuracy"

    def ask(self, facts: Facts) -> Question | str:
        graph = facts.graph
        if graph.y.dim() > 1:
            return "labels of single samples are not inferred: a node here has several"
        subjects = facts.strangers()
        given = facts.protocol.labelled(graph, facts.observer)
        subjects = subjects[(graph.y[subjects] >= 0) & ~torch.isin(subjects, given)]
        if len(subjects) == 0:
            return "the observer holds every label already"
        return Question(subjects, graph.y[subjects], facts.clusters(subjects))

    def guess(self, view: View, subjects: Tensor) -> Inference:
        known = view.known_rows()
        nodes, y = torch.cat([known.nodes, view.labels.nodes]), torch.cat([known.y, view.labels.y])
        nodes, y = nodes[y >= 0], y[y >= 0]
        classes = view.public.num_classes
        prior = torch.bincount(y, minlength=classes).double() + 1
        prior = prior / prior.sum()
        seeds = torch.zeros(view.public.num_nodes, classes, dtype=torch.double)
        seeds[nodes] = torch.nn.functional.one_hot(y, classes).double()
        fixed = torch.zeros(view.public.num_nodes, dtype=torch.bool)
        fixed[nodes] = True
        row, column = known_edges(view)
        row, column = row[row != column], column[row != column]
        degree = torch.bincount(row, minlength=len(seeds)).clamp(min=1).double().unsqueeze(1)
        spread = torch.where(fixed.unsqueeze(1), seeds, prior)
        for _ in range(_STEPS):
            mean = torch.zeros_like(spread).index_add_(0, row, spread[column]) / degree
            spread = torch.where(fixed.unsqueeze(1), seeds, _DAMPING * mean + (1 - _DAMPING) * prior)
        return Inference(self.name, subjects, spread[subjects])

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return Scores((estimate.argmax(1) == question.truth).double(), question.clusters, {})
