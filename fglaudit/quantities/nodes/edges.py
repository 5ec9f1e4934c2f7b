"""Which nodes are neighbours: subjects are node pairs [S, 2], an estimate is a score [S] (higher: more likely an edge).

Asked about are all pairs of nodes that the observer does not own. A pair's two orders are one pair. Pairs that an
attack leaves out rank last, all alike, so that large graphs need only their likely pairs listed. The metric is the area
under the ROC curve over all pairs; ``tpr_at_fpr_1`` the share of edges found at 1 % false ones. A guess ranks pairs of
known rows by their cosine, all others in between.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Inference, Planted
from fglaudit.quantities.base import InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.quantities.ranking import found_at, placements
from fglaudit.view import View

_UNLISTED = float("-inf")
_MOST_PAIRS = 2**23
"""Pairs of known rows that a guess lists: all pairs of 4096 rows."""
_BLOCK = 1024
"""Rows that are compared with all others at a time."""


class Edges(InferredQuantity):
    """See the module docstring. The question lists the edges; its ``rest`` counts the pairs that are none."""

    name: ClassVar[str] = "edges"
    metric: ClassVar[str] = "auc"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        if truth.observer.topology:
            return "the observer knows the topology"
        foreign = truth.foreign()
        row, column = graph.edge_index
        edges = graph.edge_index[:, (row < column) & foreign[row] & foreign[column]].T
        nodes = int(foreign.sum().item())
        rest = nodes * (nodes - 1) // 2 - len(edges)
        if len(edges) == 0 or rest == 0:
            return "no two nodes of others are neighbours, or all are"
        return Question(edges, torch.ones(len(edges)), truth.clusters(edges[:, 0]), rest, foreign)

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        """Rank pairs of known rows by their cosine. ``subjects`` are the edges themselves and are not looked at."""
        known = view.known_rows()
        if len(known.nodes) == 0:
            return Inference(self.name, torch.empty(0, 2, dtype=torch.long), torch.empty(0, dtype=torch.double))
        rows = known.x.double() - known.x.double().mean(0)
        rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
        pairs, cosine = likely_pairs(rows)
        return Inference(self.name, known.nodes[pairs], cosine)

    def planted(self, planted: Planted) -> Question:
        nodes = planted.view.public.num_nodes
        question = super().planted(planted)
        return dataclasses.replace(question, rest=nodes * (nodes - 1) // 2 - len(planted.nodes))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        """Score estimates of the edges alone, every other pair being unlisted."""
        return self._ranked(question, question.subjects, estimate)

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score a ranking; a pair that the attack leaves out is no better off for standing in the guess."""
        return self._ranked(question, result.subjects, result.estimate)

    def _ranked(self, question: Question, pairs: Tensor, estimate: Tensor) -> Scores:
        """Score ``estimate`` [S] of ``pairs`` [S, 2]; of a pair that is listed more than once the highest counts."""
        size = int(max(pairs.max().item() if pairs.numel() else 0, question.subjects.max().item())) + 1
        low, high = pairs.amin(1), pairs.amax(1)
        use = low != high
        if question.among is not None:
            use &= question.among[low] & question.among[high]
        codes, index = torch.unique(low[use] * size + high[use], return_inverse=True)
        best = torch.full((len(codes),), _UNLISTED, dtype=torch.double)
        best.scatter_reduce_(0, index, estimate[use].double(), "amax")
        edges = question.subjects.amin(1) * size + question.subjects.amax(1)
        positive = torch.full((len(edges),), _UNLISTED, dtype=torch.double)
        if len(codes):
            place = torch.searchsorted(codes, edges).clamp(max=len(codes) - 1)
            listed = codes[place] == edges
            positive[listed] = best[place[listed]]
        negative = best[~torch.isin(codes, edges)]
        rest = max(0, question.rest - len(negative))
        values = placements(positive, negative, rest=rest)
        at_one = found_at(positive, negative, 0.01, rest=rest)
        columns = {"auc": float(values.mean().item()), "tpr_at_fpr_1": float(at_one.mean().item())}
        return Scores(values, question.clusters, columns)


def likely_pairs(rows: Tensor, most: int = _MOST_PAIRS) -> tuple[Tensor, Tensor]:
    """Return the pairs of ``rows`` [R, F] with a positive product, places [P, 2] and products [P]; the ``most`` largest
    where there are more."""
    found, products = torch.empty(0, 2, dtype=torch.long), rows.new_empty(0)
    for start in range(0, len(rows), _BLOCK):
        block = (rows[start : start + _BLOCK] @ rows[start:].T).triu(1)
        first, second = (block > 0).nonzero(as_tuple=True)
        found = torch.cat([found, torch.stack([first, second], 1) + start])
        products = torch.cat([products, block[first, second]])
        if len(products) > most:
            products, kept = products.topk(most)
            found = found[kept]
    return found, products
