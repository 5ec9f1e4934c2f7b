"""Norms of feature rows: subjects are node ids [S], an estimate is a number [S]; in binary rows both count the ones.

Asked about are the protocol's exposed nodes of which the observer holds no row. An answer is right within one percent
of the truth (so counts below 50 must be exact); ``relative_error`` is the mean error. A guess is the median or the most
frequent norm of the rows that the observer knows; without any it is half the number of features, 0 (rows without an
entry), 1 (normalised rows), or what the other nodes that are asked about have most often. Of these the one that is
right most often stands, so that what rows have in common, or how their norms are distributed, is no achievement: who
answers any node with another one's norm is right now and then.

Where what an attack reads is altered, the metric is the ratio of the smaller to the larger of answer and truth
(:mod:`fglaudit.quantities.graded`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Attack, Inference
from fglaudit.quantities.base import (
    ALL_ROWS_KNOWN,
    NO_ROW_REACHES,
    Attempt,
    Comparison,
    InferredQuantity,
    ObserverTruth,
    Question,
    Scores,
)
from fglaudit.quantities.graded import graded
from fglaudit.view import View

_TOLERANCE = 0.01


class _Norms(InferredQuantity):
    metric: ClassVar[str] = "exact_rate"

    def of(self, x: Tensor) -> Tensor:
        """Return the norm of every row of ``x`` [..., F]."""
        raise NotImplementedError

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        if graph.x.dim() > 2:
            return "norms are asked of nodes with one sample each"
        exposed = truth.protocol.exposed(graph, truth.observer)
        subjects = exposed[torch.isin(exposed, truth.strangers())]
        if len(subjects) == 0:
            return ALL_ROWS_KNOWN if len(exposed) else NO_ROW_REACHES
        return Question(subjects, self.of(graph.x[subjects].double()), truth.clusters(subjects))

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        known = self.of(view.known_rows().x.double())
        typical = known.median() if len(known) else torch.tensor(view.public.num_features / 2, dtype=torch.double)
        return Inference(self.name, subjects, typical.expand(len(subjects)))

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        attempts = [each._replace(guess=self._best(each)) for each in graded(attack, attempts)]
        compared = super().compare(attack, attempts)
        return dataclasses.replace(compared, metric="ratio") if attempts[0].question.graded else compared

    def _best(self, attempt: Attempt) -> Inference:
        """Return the number for all subjects with the best score, the guess unless another one has it."""
        view, question = attempt.view, attempt.question
        guess: Inference = attempt.guess
        known = self.of(view.known_rows().x.double())
        constant = known.mode().values[None] if len(known) else torch.tensor([0.0, 1.0], dtype=torch.double)
        numbers = [number.expand(len(guess.subjects)) for number in constant]
        if len(known) == 0 and len(question.truth) > 1:
            numbers.append(of_others(question))
        others = [Inference(self.name, guess.subjects, estimate) for estimate in numbers]

        def right(each: Inference) -> float:
            return float(self.score(question, each, each).values.sum().item())

        return max(guess, *others, key=right)

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        error = (estimate.double() - question.truth).abs()
        relative = torch.where(question.truth > 0, error / question.truth.clamp(min=1e-12), error)
        right = (error <= _TOLERANCE * question.truth).double()
        columns = {"exact_rate": float(right.mean().item()), "relative_error": float(relative.mean().item())}
        if not question.graded:
            return Scores(right, question.clusters, columns)
        larger = torch.maximum(estimate.double(), question.truth)
        ratio = torch.where(larger > 0, (1 - error / larger.clamp(min=1e-12)).clamp(min=0), 1.0)
        return Scores(ratio, question.clusters, columns)


def of_others(question: Question) -> Tensor:
    """Return of every subject what the other ones have most often [S], several at least; their mean where near misses
    count."""
    truth = question.truth
    if question.graded:
        return (truth.sum() - truth) / (len(truth) - 1)
    values, index, counts = torch.unique(truth, return_inverse=True, return_counts=True)
    most, order = counts.topk(min(2, len(counts)))
    if len(most) < 2:
        return truth
    without = (index == order[0]) & (most[0] == most[1])  # the most frequent one is that but for the subject itself
    return torch.where(without, values[order[1]], values[order[0]])


class L1Norms(_Norms):
    """``||x||_1``: what Adam's step lengths give away."""

    name: ClassVar[str] = "l1-norms"

    def of(self, x: Tensor) -> Tensor:
        return x.abs().sum(-1)


class SquaredNorms(_Norms):
    """``||x||_2^2``: what gradient steps give away."""

    name: ClassVar[str] = "squared-norms"

    def of(self, x: Tensor) -> Tensor:
        return x.square().sum(-1)
