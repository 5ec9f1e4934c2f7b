"""How the labels of a client's training nodes are distributed: as :mod:`.label_distributions`, which asks for all
nodes of a client. Updates are made of training nodes alone; clients without any are not asked about."""

from __future__ import annotations

from typing import ClassVar

import torch

from fglaudit.quantities.base import ObserverTruth, Question
from fglaudit.quantities.clients.label_distributions import LabelDistributions, histogram, of_others


class TrainingLabels(LabelDistributions):
    """See the module docstring."""

    name: ClassVar[str] = "training-labels"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        if graph.y.dim() != 1:
            return "a node has several labels, one per sample"
        trained = (graph.y[ids[train]] for ids, train in zip(graph.clients, graph.train, strict=True))
        counts = torch.stack([histogram(labels, graph.num_classes) for labels in trained])
        return of_others(truth, counts) or "no other client has training nodes"
