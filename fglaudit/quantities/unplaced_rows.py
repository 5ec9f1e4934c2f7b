"""Rows of clients of which nobody asks which node they belong to: subjects are pairs (client, index) [S, 2], an
estimate is a row [S, F].

Nor is a row's length asked, which no update shows: a row is exact if, both scaled to a largest entry of 1, no entry is
off by more than 1e-3. Rows of an attack are matched to the true ones of the client that it names (-1: of anybody) one
to one; of more rows than there are true ones the first count. A guess is the mean of the rows that the observer knows.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, Question, Scores
from fglaudit.view import View

TOLERANCE = 1e-3
"""Of the largest entry."""
ANYBODY = -1


class UnplacedRows(InferredQuantity):
    """See the module docstring; a quantity adds which rows are asked about."""

    metric: ClassVar[str] = "exact_rate"

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        known = view.known_rows().x
        row = known.double().mean(0) if len(known) else torch.ones(view.public.num_features, dtype=torch.double)
        return Inference(self.name, subjects, row.expand(len(subjects), -1))

    def score(self, question: Question, result: Inference, guess: Inference) -> Scores:
        """Score rows; a true row that no row is left for gets what the guess has for it."""
        estimate = guess.estimate.double().clone()
        for client in torch.unique(result.subjects[:, 0]).tolist():
            given = (result.subjects[:, 0] == client).nonzero().squeeze(1)
            wanted = torch.arange(len(question.truth))
            if client != ANYBODY:
                wanted = (question.subjects[:, 0] == client).nonzero().squeeze(1)
            given = given[: len(wanted)]
            if not len(given):
                continue
            rows = result.estimate[given].double()
            likeness = normalize(question.truth[wanted].double(), dim=1) @ normalize(rows, dim=1).T
            truth, found = (torch.from_numpy(i) for i in linear_sum_assignment(likeness.numpy(), maximize=True))
            estimate[wanted[truth]] = rows[found]
        return self.judge(question, estimate)

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        found, truth = _scaled(estimate.double()), _scaled(question.truth.double())
        exact = ((found - truth).abs().amax(1) <= TOLERANCE).double()
        cosine = torch.nan_to_num(torch.cosine_similarity(found, truth, dim=1))
        columns = {"exact_rate": float(exact.mean().item()), "cosine": float(cosine.mean().item())}
        return Scores(exact, question.clusters, columns)


def _scaled(rows: Tensor) -> Tensor:
    """Return rows [S, F] with a largest entry of 1."""
    return rows / rows.abs().amax(1, keepdim=True).clamp(min=1e-300)
