"""How the labels of a client's training nodes are distributed: as :mod:`fglaudit.quantities.label_distributions`, which
asks for all nodes of a client. Updates are made of training nodes alone; clients without any are not asked about."""

from __future__ import annotations

from typing import ClassVar

import torch

from fglaudit.quantities.base import Question, Truth
from fglaudit.quantities.label_distributions import LabelDistributions


class TrainingLabels(LabelDistributions):
    """See the module docstring."""

    name: ClassVar[str] = "training-labels"

    def ask(self, truth: Truth) -> Question | str:
        graph = truth.graph
        if graph.y.dim() != 1:
            return "a node has several labels, one per sample"
        counts = torch.stack(
            [
                torch.bincount(labels[labels >= 0], minlength=graph.num_classes).double()
                for labels in (graph.y[ids[train]] for ids, train in zip(graph.clients, graph.train, strict=True))
            ]
        )
        others = torch.tensor(
            [k for k in range(graph.num_clients) if k not in truth.observer.clients and counts[k].sum() > 0]
        )
        if len(others) == 0:
            return "no other client has training nodes"
        shares = counts[others] / counts[others].sum(1, keepdim=True)
        clusters = torch.full_like(others, truth.observer.clients[0]) if truth.pooled else others
        return Question(others, shares, clusters)
