"""Rows of clients of which nobody asks which node they belong to: subjects are pairs (client, index) [S, 2], an
estimate is a row [S, F].

Nor is a row's length asked, which no update shows: a row is exact if, both scaled to a largest entry of 1, no entry is
off by more than 1e-3. Rows of an attack are matched to the true ones of the client that it names (-1: of anybody) one
to one; of more rows than there are true ones the first count. A guess is the mean of the rows that the observer knows.

Where what an attack reads is altered, the cosine stands for the rate of exact rows (:mod:`fglaudit.quantities.graded`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.interfaces import Attack, Inference
from fglaudit.quantities.base import Attempt, Comparison, InferredQuantity, Question, Scores, mean_known_row
from fglaudit.quantities.graded import graded
from fglaudit.quantities.rows.metrics import directions
from fglaudit.view import View

TOLERANCE = 1e-3
"""Of the largest entry."""
ANYBODY = -1
_AT_ONCE = 2**15
"""Entries that are scored together."""


class UnplacedRows(InferredQuantity):
    """See the module docstring; a quantity adds which rows are asked about."""

    metric: ClassVar[str] = "exact_rate"

    def compare(self, attack: Attack, attempts: Sequence[Attempt]) -> Comparison:
        """Compare exact rows, or cosines where what ``attack`` reads is altered."""
        attempts = graded(attack, attempts)
        compared = super().compare(attack, attempts)
        return dataclasses.replace(compared, metric="cosine") if attempts[0].question.graded else compared

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, mean_known_row(view).expand(len(subjects), -1))

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score rows; a true row that no row is left for gets what the guess has for it."""
        if result is guess:  # all its rows are equal: there is nothing to match
            return self.judge(question, guess.estimate)
        taken = torch.full((len(question.truth),), -1)
        for client in torch.unique(result.subjects[:, 0]).tolist():
            given = (result.subjects[:, 0] == client).nonzero().squeeze(1)
            wanted = torch.arange(len(question.truth))
            if client != ANYBODY:
                wanted = (question.subjects[:, 0] == client).nonzero().squeeze(1)
            given = given[: len(wanted)]
            if not len(given):
                continue
            likeness = _unit(question.truth[wanted]) @ _unit(result.estimate[given]).T
            truth, found = (torch.from_numpy(i) for i in linear_sum_assignment(likeness.numpy(), maximize=True))
            taken[wanted[truth]] = given[found]
        return self._judged(question, guess.estimate, result.estimate, taken)

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        return self._judged(question, estimate, estimate, torch.full((len(estimate),), -1))

    def _judged(self, question: Question, estimate: Tensor, found: Tensor, taken: Tensor) -> Scores:
        """Score ``estimate`` [S, F], of which row s is replaced by ``found[taken[s]]`` unless ``taken[s]`` is -1; so
        many rows at a time that all copies of them fit a cache."""
        exact, cosine = [], []
        for part in torch.split(torch.arange(len(estimate)), max(1, _AT_ONCE // max(estimate.shape[1], 1))):
            rows, chosen = estimate[part].double(), taken[part]
            rows[chosen >= 0] = found[chosen[chosen >= 0]].double()
            rows, truth = _scaled(rows), _scaled(question.truth[part].double())
            exact.append(((rows - truth).abs_().amax(1) <= TOLERANCE).double())
            cosine.append(torch.nan_to_num(torch.cosine_similarity(rows, truth, dim=1)))
        none = torch.zeros(0, dtype=torch.double)
        right, near = torch.cat([none, *exact]), torch.cat([none, *cosine])
        columns = {"exact_rate": float(right.mean().item()), "cosine": float(near.mean().item())}
        return Scores(near if question.graded else right, question.clusters, columns)


def _unit(rows: Tensor) -> Tensor:
    """Return rows [S, F] of length 1."""
    return directions(rows.double())


def _scaled(rows: Tensor) -> Tensor:
    """Return rows [S, F], of memory of their own, scaled there to a largest entry of 1."""
    return rows.div_(rows.abs().amax(1, keepdim=True).clamp_(min=1e-300))
