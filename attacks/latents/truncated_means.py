"""Expected entries of real-valued rows of which it is known between which numbers they lie.

An entry is zero with a probability that all of them have in common, else normal around zero. The bounds are public
turning points next to it, whichever it is, so that a zero has the likelihood one where it lies between them, another
entry the probability of the normal distribution there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_TURNS = 20


def expected_entries(low: Tensor, high: Tensor, least: Tensor, told: Tensor, size: float) -> Tensor:
    """Return the posterior mean of entries between ``low`` and ``high`` [U, F].

    Args:
        least: how large those entries are at least that are not small ones between bounds on both sides [U, 1].
        told: which entries have bounds [U, F]; the share of zeros is that among them.
        size: deviation of the entries that are not zero.
    """
    bounds = torch.where(low > -least, low.maximum(least), low), torch.where(high < least, high.minimum(-least), high)
    small = bounds[0] > bounds[1]
    larger = (torch.where(small, low, bounds[0]), torch.where(small, high, bounds[1]))
    mean = truncated_mean(torch.zeros_like(low), torch.full_like(low, size), *larger)
    inside = (torch.special.ndtr(high / size) - torch.special.ndtr(low / size)).clamp(min=1e-300)
    possible = (low <= 0) & (high >= 0)
    zero = torch.zeros_like(low)
    share = low.new_tensor(0.5)
    for _ in range(_TURNS):  # expectation and maximisation
        zero = share * possible / (share * possible + (1 - share) * inside)
        share = zero[told].mean() if bool(told.any()) else share
    return (1 - zero) * mean


def truncated_mean(mean: Tensor, deviation: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the expectation [...] of a normal variable given that it lies in [``low``, ``high``], each [...], either
    of them infinite or not; exact in the tails too.

    With standardised bounds a, b it is ``mean + deviation (phi(a) - phi(b)) / (Phi(b) - Phi(a))``.
    """
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b < 0  # the nearer bound is then a, from above; of two infinite ones there is no nearer
    a, b = torch.where(turned, -b, a), torch.where(turned, -a, b)
    further = ((a.square() - b.square()) / 2).nan_to_num(0.0).clamp(max=0.0).exp()
    positive, root = a.clamp(min=0), math.sqrt(2)
    tail = torch.special.erfcx(positive / root) - further * torch.special.erfcx(b / root)
    above = math.sqrt(2 / math.pi) * (1 - further) / tail.clamp(min=1e-300)
    density = (torch.exp(-a.square() / 2) - torch.exp(-b.square() / 2)) / math.sqrt(2 * math.pi)
    around = density / (torch.special.ndtr(b) - torch.special.ndtr(a)).clamp(min=1e-300)
    expected = torch.where(a > 0, above, around).clamp(a, b)
    return mean + deviation * torch.where(turned, -expected, expected)
