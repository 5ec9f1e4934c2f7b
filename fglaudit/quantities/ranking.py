"""Scores of a ranking, one per positive, so that they can be clustered: ROC area and hits at few false positives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from scipy.stats import beta
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Inference
from fglaudit.quantities.base import InferredQuantity, Question, Scores
from fglaudit.quantities.negatives import Negatives
from fglaudit.view import View

RESAMPLES = 1000
TAIL = 0.025
DRAWN_AT_ONCE = 2**22


def placements(positive: Tensor, negative: Tensor, *, rest: int = 0) -> Tensor:
    """Return for every positive score [P] the share of negatives below it, ties counted half: their mean is the AUC.

    Args:
        negative: scores of the negatives that were listed [N].
        rest: number of further negatives, all with score -inf.
    """
    order = negative.sort().values
    below = torch.searchsorted(order, positive, side="left")
    upto = torch.searchsorted(order, positive, side="right")
    wins = (below + upto).double() / 2
    wins = wins + rest * ((positive > -torch.inf).double() + (positive == -torch.inf).double() / 2)
    return wins / (len(negative) + rest)


def against(positive: Tensor, negative: Tensor, clusters: Tensor) -> Negatives:
    """Return the other side of :func:`placements`: of negatives with scores [N] and ``clusters`` [N]."""
    values = 1 - placements(negative, positive)
    weights = torch.full_like(values, len(positive) / max(len(negative), 1))
    return Negatives(values, clusters, weights, torch.zeros(len(values), dtype=torch.long))


def found_at(positive: Tensor, negative: Tensor, rate: float, *, rest: int = 0) -> Tensor:
    """Return for every positive [P] whether it scores above all but the share ``rate`` of the negatives, as 0 or 1.

    ``negative`` [N] are the listed scores, ``rest`` further negatives have score -inf. Where the threshold falls
    into a tie, the tied positives count by the share of the tied negatives that may still pass.
    """
    allowed = rate * (len(negative) + rest)
    if allowed < len(negative):
        threshold = float(negative.kthvalue(len(negative) - int(allowed)).values.item())
    else:
        threshold = -torch.inf if rest else float(negative.min().item())
    above = int((negative > threshold).sum().item())
    tied = int((negative == threshold).sum().item()) + rest * (threshold == -torch.inf)
    share = min(1.0, max(0.0, (allowed - above) / tied)) if tied else 0.0
    return (positive > threshold).double() + share * (positive == threshold).double()


def found_interval(groups: Sequence[tuple[Tensor, Tensor]], rate: float, rng: torch.Generator) -> tuple[float, float]:
    """Return a 95 % interval of the share of positives found at ``rate``; it takes nodes for independent of each other.

    The central 95 % over :data:`RESAMPLES` draws of positives and of negatives with replacement tell the luck of the
    threshold. Where next to none or nearly all were found they say too little (of 0 found: nothing but 0), so each
    limit is the outer of theirs and that of Clopper and Pearson (1934), the threshold taken as it is.

    Args:
        groups: scores of positives [P] and negatives [N]; every group has a threshold of its own.
    """
    total = torch.zeros(RESAMPLES, dtype=torch.double)
    for positive, negative in groups:
        size = max(1, DRAWN_AT_ONCE // (len(positive) + len(negative)))
        for chosen in torch.split(torch.arange(RESAMPLES), size):
            others = _redrawn(negative, len(chosen), rng).sort(1, descending=True).values
            allowed = rate * len(negative)
            threshold = others[:, min(int(allowed), len(negative) - 1), None]
            above, tied = (others > threshold).sum(1), (others == threshold).sum(1)
            share = ((allowed - above) / tied).clamp(0, 1)
            found = _redrawn(positive, len(chosen), rng)
            total[chosen] += (found > threshold).sum(1) + share * (found == threshold).sum(1)
    size = sum(len(positive) for positive, _ in groups)
    low, high = (total / size).quantile(torch.tensor([TAIL, 1 - TAIL]).double()).tolist()
    hits = sum(float(found_at(positive, negative, rate).sum().item()) for positive, negative in groups)
    least, most = math.floor(hits), math.ceil(hits)
    low = min(low, float(beta.ppf(TAIL, least, size - least + 1)) if least else 0.0)
    return low, max(high, float(beta.isf(TAIL, most + 1, size - most)) if most < size else 1.0)


def _redrawn(values: Tensor, draws: int, rng: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (draws, len(values)), generator=rng)]


def enough_negatives(count: int, rate: float) -> bool:
    """Whether ``count`` negatives say anything of a false-positive rate of ``rate``: one of them must be allowed."""
    return count >= round(1 / rate)


def require_negatives(count: int, rate: float) -> None:
    """Raise :class:`FglauditError` unless there are :func:`enough_negatives`."""
    if not enough_negatives(count, rate):
        raise FglauditError(
            f"a false-positive rate of {rate:g} needs at least {round(1 / rate)} non-members; got {count}; take more of"
            " them or ask for a higher rate"
        )


class RankedQuantity(InferredQuantity):
    """A quantity whose subjects are true or not: an estimate is a score [S], the higher the likelier, the metric is the
    area under the ROC curve, and a guess says the same of every subject."""

    metric: ClassVar[str] = "auc"
    rates: ClassVar[Mapping[str, float]] = {"tpr_at_fpr_1": 0.01}
    """Columns with the share of true ones found at a false-positive rate, where negatives are enough for it."""

    def guess(self, view: View, subjects: Tensor, rng: torch.Generator) -> Inference:
        return Inference(self.name, subjects, torch.zeros(len(subjects), dtype=torch.double))

    def judge(self, question: Question, estimate: Tensor) -> Scores:
        true = question.truth > 0
        positive, negative = estimate[true].double(), estimate[~true].double()
        values = placements(positive, negative)
        columns = {"auc": float(values.mean().item())}
        for name, rate in self.rates.items():
            if enough_negatives(len(negative), rate):
                columns[name] = float(found_at(positive, negative, rate).mean().item())
        return Scores(values, question.clusters[true], columns, against(positive, negative, question.clusters[~true]))
