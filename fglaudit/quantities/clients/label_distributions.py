"""How a client's labels are distributed: subjects are client ids [S], an estimate is a distribution [S, C].

The metric is the overlap with the truth, one minus the total-variation error. Asked about are all clients that are not
observing. The guess is the distribution of the labels that the observer knows of nodes from all clients, else that of
its own nodes, or uniform. Where even shares come closer they are the control: training nodes are often drawn per class,
whatever the classes' sizes, and most attacks return even shares of messages that hold nothing. Which of the two stands
is decided by the truth, in favour of the guess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.interfaces import Attack, Inference
from fglaudit.quantities.base import Attempt, Comparison, InferredQuantity, ObserverTruth, Question, Scores
from fglaudit.view import View


class LabelDistributions(InferredQuantity):
    """See the module docstring."""

    name: ClassVar[str] = "label-distributions"
    metric: ClassVar[str] = "overlap"

    def ask(self, truth: ObserverTruth) -> Question | str:
        graph = truth.graph
        counts = torch.stack([histogram(graph.y[ids], graph.num_classes) for ids in graph.clients])
        return of_others(truth, counts) or "there is no other client with labels"

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        drawn = torch.cat([view.auxiliary.y.flatten(), view.labels.y])
        # Auxiliary rows come from everybody; the observer's own clients say little of others where classes are spread
        # unevenly.
        known = drawn if bool((drawn >= 0).any()) else view.known_rows().y.flatten()
        counts = histogram(known, view.public.num_classes)
        overall = counts / counts.sum() if counts.sum() > 0 else torch.full_like(counts, 1 / len(counts))
        return Inference(self.name, subjects, overall.expand(len(subjects), -1))

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        even = [each._replace(guess=_even(each.guess)) for each in attempts]
        return super().compare(attack, max(attempts, even, key=self._guessed))

    def _guessed(self, attempts: Sequence[Attempt]) -> float:
        """Return the sum of the guesses' scores."""
        return sum(float(self.score(q, guess, guess).values.sum().item()) for _, q, _, guess in attempts)

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        estimate = estimate.double().clamp(min=0)
        estimate = estimate / estimate.sum(1, keepdim=True).clamp(min=1e-12)
        error = (estimate - question.truth).abs().sum(1) / 2
        cosine = torch.cosine_similarity(estimate, question.truth, dim=1)
        return Scores(
            1 - error,
            question.clusters,
            {"tv_error": float(error.mean().item()), "cosine": float(cosine.mean().item())},
        )


def _even(guess: Inference) -> Inference:
    return dataclasses.replace(guess, estimate=torch.full_like(guess.estimate, 1 / guess.estimate.shape[1]))


def of_others(truth: ObserverTruth, counts: Tensor) -> Question | None:
    """Return the question for the distributions of the clients that have labels and are not observing, from the numbers
    of labels of every class at every client [K, C]; None where there is no such client."""
    others = truth.others()
    others = others[counts[others].sum(1) > 0]
    if len(others) == 0:
        return None
    shares = counts[others] / counts[others].sum(1, keepdim=True)
    return Question(others, shares, truth.clusters_of(others))


def histogram(y: Tensor, classes: int) -> Tensor:
    """Return how many labels of every class there are [C]; -1 is none."""
    return torch.bincount(y[y >= 0].flatten(), minlength=classes).double()
