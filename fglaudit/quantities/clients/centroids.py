"""Mean feature rows of FedGT's clusters: subjects are pairs (client, global node) [S, 2], an estimate is a row [S, F].

Asked about are the clusters of at least two nodes, not all without any word, at clients that are not observing, after
the tenth round (after the last one of a shorter training): the nodes of the client that are nearest to this one of its
global nodes. The metric is the cosine with the true mean row; ``relative_error`` is the length of the error over the
length of the truth. A guess is the mean of the rows that the observer knows, without any the same chance for every
word.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import (
    InferredQuantity,
    ObserverTruth,
    Question,
    Scores,
    mean_known_row,
    similarity_scores,
)
from fglaudit.view import View

ROUND = 10
_LEAST_NODES = 2


class Centroids(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "centroids"
    metric: ClassVar[str] = "cosine"

    def ask(self, truth: ObserverTruth) -> Question | str:
        if "clusters" not in truth.trained:
            return "this protocol has no clusters"
        graph, history = truth.graph, truth.trained["clusters"]
        nearest = history[min(ROUND, len(history)) - 1].long()
        pairs, rows = [], []
        for k in truth.others().tolist():
            cluster = nearest[k][: len(graph.clients[k])]
            count = torch.bincount(cluster)
            total = torch.zeros(len(count), graph.num_features, dtype=torch.double)
            total.index_add_(0, cluster, graph.x[graph.clients[k]].double())
            large = ((count >= _LEAST_NODES) & (total != 0).any(1)).nonzero().squeeze(1)
            pairs.append(torch.stack([torch.full_like(large, k), large], 1))
            rows.append(total[large] / count[large].unsqueeze(1))
        if not pairs or not sum(len(p) for p in pairs):
            return "no other client has a cluster of two nodes or more with features"
        subjects = torch.cat(pairs)
        return Question(subjects, torch.cat(rows), truth.clusters_of(subjects[:, 0]))

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, mean_known_row(view).expand(len(subjects), -1))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return similarity_scores(question, estimate)
