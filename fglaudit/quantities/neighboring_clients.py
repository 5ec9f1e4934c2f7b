"""Which clients hold neighbours of a node: subjects are (client, node) [S, 2], estimates scores [S] (higher: likelier).

Asked about are all pairs of a client that is not observing and a node that neither this client nor an observing one
holds. The metric is the area under the ROC curve. A guess says the same of every pair.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.quantities.ranking import ranked
from fglaudit.view import View


class NeighboringClients(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "neighboring-clients"
    metric: ClassVar[str] = "auc"
    asks_last: ClassVar[bool] = True

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        row, column = graph.edge_index
        held, near = (torch.zeros(graph.num_clients, graph.num_nodes, dtype=torch.bool) for _ in range(2))
        for k, nodes in enumerate(graph.clients):
            held[k, nodes] = True
            near[k, row[held[k, column]]] = True
        others = [k for k in range(graph.num_clients) if k not in truth.observer.clients]
        foreign = held.any(0) & ~held[list(truth.observer.clients)].any(0)
        asked = ~held & foreign
        asked[list(truth.observer.clients)] = False
        if len(others) == 0 or not bool((near & asked).any()) or not bool((~near & asked).any()):
            return "every node of others has a neighbour at every other client, or none has"
        subjects = asked.nonzero()
        clusters = torch.full((len(subjects),), truth.observer.clients[0]) if truth.pooled else subjects[:, 0]
        return Question(subjects, near[asked].double(), clusters)

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, torch.zeros(len(subjects), dtype=torch.double))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return ranked(question, estimate)
