"""The feature rows that clients hold: subjects are pairs (client, index) [S, 2], an estimate is a row [S, F].

Which node a row belongs to is not asked, nor its length; rows are matched and scored as
:mod:`fglaudit.quantities.layer_inputs` says. Asked about are all rows with an entry of the clients that are not
observing: an attack need not reach most of them. A guess is the mean of the rows that the observer knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from fglaudit.interfaces import Attack, Inference
from fglaudit.quantities.base import Comparison, InferredQuantity, Question, Truth
from fglaudit.quantities.layer_inputs import LayerInputs
from fglaudit.view import View


class HeldRows(LayerInputs):
    """See the module docstring."""

    name: ClassVar[str] = "held-rows"

    def ask(self, truth: Truth) -> Question | str:
        graph = truth.graph
        if graph.x.dim() != 2:
            return "a node has several feature rows, one per sample"
        others = [k for k in range(graph.num_clients) if k not in truth.observer.clients]
        known = torch.zeros(graph.num_nodes, dtype=torch.bool)
        known[truth.auxiliary.nodes] = True
        subjects, rows = [], []
        for k in others:  # few, and of different size
            x = graph.x[graph.clients[k][~known[graph.clients[k]]]]
            x = x[x.any(1)]
            subjects.append(torch.stack([torch.full((len(x),), k), torch.arange(len(x))], 1))
            rows.append(x)
        if not sum(len(x) for x in rows):
            return "no other client holds a row with an entry"
        asked = torch.cat(subjects)
        clusters = torch.full((len(asked),), truth.observer.clients[0]) if truth.pooled else asked[:, 0]
        return Question(asked, torch.cat(rows), clusters)

    def compare(
        self,
        attack: Attack,
        views: Sequence[View],
        asked: Sequence[Question],
        results: Sequence[Inference],
        guesses: Sequence[Inference],
    ) -> Comparison:
        return InferredQuantity.compare(self, attack, views, asked, results, guesses)
