"""The negatives of a ranking, whose luck is part of an AUC's error as well as that of the positives.

The area under the ROC curve is the mean over positives of the share of negatives below each, and as much the mean over
negatives of the share of positives above each. An error that is made of the positives' shares alone takes the negatives
for all there are; drawn anew, they would move the area too (DeLong, DeLong and Clarke-Pearson 1988; in clusters:
Obuchowski 1997). So both sides are kept: :mod:`fglaudit.scoring.clusters` adds up per cluster what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Negatives(NamedTuple):
    """Negatives of one or several rankings.

    Attributes:
        values: the share of the positives that rank above each, ties counted half [N]; within a ranking their mean is
            the mean of the positives' values.
        clusters: of each [N].
        weights: positives per negative of its ranking [N].
        rankings: which ranking each belongs to [N], from 0.
    """

    values: Tensor
    clusters: Tensor
    weights: Tensor
    rankings: Tensor

    @staticmethod
    def joined(parts: Sequence[Negatives]) -> Negatives:
        """Put the rankings of all ``parts`` side by side."""
        counts = torch.tensor([0, *(int(p.rankings.max().item()) + 1 if len(p.rankings) else 0 for p in parts)])
        rankings = [p.rankings + start for p, start in zip(parts, counts.cumsum(0)[:-1], strict=True)]
        values, clusters, weights = (
            torch.cat([getattr(p, name) for p in parts]) for name in ("values", "clusters", "weights")
        )
        return Negatives(values, clusters, weights, torch.cat(rankings))

    def moved(self, part: Tensor) -> Tensor:
        """Return by how much each negative moves its ranking's sum over positives, where ``part`` [N] says something of
        every negative: its distance from the ranking's mean, in positives."""
        size = int(self.rankings.max().item()) + 1 if len(self.rankings) else 0
        count = torch.zeros(size, dtype=torch.double).index_add_(0, self.rankings, torch.ones(len(part)).double())
        total = torch.zeros(size, dtype=torch.double).index_add_(0, self.rankings, part.double())
        return (part.double() - (total / count.clamp(min=1))[self.rankings]) * self.weights
