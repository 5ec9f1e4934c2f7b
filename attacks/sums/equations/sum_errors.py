"""Standard deviation of what a defense adds to sums: noise, and rounding to a grid."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import noise_std, rounding_on
from fglaudit.payloads import NeighborSums
from fglaudit.view import View


def added_to_sums(view: View, values: Tensor, direction: str) -> Tensor:
    """Return the standard deviation on an entry of each sum [R], float64.

    Args:
        values: the sums [R, F]; a grid of levels over a message's range is as fine as they are wide.
        direction: "up" for what clients add to their parts, "down" for what the server adds to totals.
    """
    std = values.new_full((len(values),), noise_std(view, NeighborSums, "sums", direction), dtype=torch.double)
    grid = rounding_on(view, NeighborSums, "sums", direction)
    if grid is None or len(values) == 0:
        return std
    step = torch.full_like(std, grid.step or 0.0)
    if grid.step is None:
        step = (values.amax(1) - values.amin(1)).double() / max((grid.levels or 2) - 1, 1)
    # Variance of rounding up or down at random, on average over positions between two levels; or to the nearest one.
    return torch.hypot(std, step * (1 / 6 if grid.stochastic else 1 / 12) ** 0.5)
