"""Messages of constraints whose noise hides every single term: the sum of the others is as good as Gaussian.

Under noise of standard deviation s, terms that are much smaller than s shape the likelihood of a sum by their mean and
variance alone. A constraint's message to bit i is then the log ratio of two Gaussian densities of variance
``s^2 + sum over the others of p (1 - p) w^2``, in closed form: ``(w (t - m) - w^2 / 2) / variance``, with m the mean of
the others' sum. A grid as fine as the noise would round such terms to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

HIDDEN = 0.25
"""A term is hidden if it is at most this share of the noise's standard deviation; what the Gaussian neglects is of the
third order in it."""


@dataclass(frozen=True)
class HiddenTerms:
    """T terms of C constraints.

    Attributes:
        constraint: [T], ascending.
        weight: coefficients [T].
        target, variance: of the constraints [C]; variance of their noise.
    """

    constraint: Tensor
    weight: Tensor
    target: Tensor
    variance: Tensor

    def messages(self, forth: Tensor) -> Tensor:
        """Return the log odds [T] that constraints send, given those that bits send [T]."""
        chance = torch.sigmoid(forth)
        mean = chance * self.weight
        spread = (mean * self.weight).mul_(1 - chance)
        all_means = torch.zeros_like(self.target).index_add_(0, self.constraint, mean)
        all_spreads = self.variance.index_add(0, self.constraint, spread)
        left = (self.target - all_means)[self.constraint].add_(mean)
        variance = all_spreads[self.constraint].sub_(spread)
        return left.sub_(self.weight / 2).mul_(self.weight).div_(variance)


def hidden(largest: Tensor, std: Tensor, exact: Tensor) -> Tensor:
    """Return which constraints [C] hide all their terms.

    Args:
        largest: largest coefficient of each constraint [C].
        std: of its noise [C].
        exact: whether its terms are all there are [C]; what only bounds a sum is no Gaussian.
    """
    return exact & (largest <= HIDDEN * std)
