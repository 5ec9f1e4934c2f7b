"""Do different values leave as the same one? Rounding, zeros in place of the smallest, numbers that are dropped: noise
never does that, so it was done to noisy values, or beside them, and no size of noise can be told from what left. Where
steps are fine, few of them meet in a message: that all lie on one grid, on which they did not enter, says the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SHARE = 0.1
"""Of values, from which on a comparison with stated noise shows no more than that something else was done."""
_MOST = 2**20
_FEWEST, _LOOKED_AT = 32, 2**10
"""Distances of values next to one another that must be whole steps, and how many are looked at."""
_ROUNDOFF, _FINEST = 2.0**-22, 32
"""What single precision may make of such a distance, as a share of the largest value; steps are so many times that."""


def merges(before: Tensor, after: Tensor) -> bool:
    """Whether many entries of ``after`` are the same number, made of different entries of ``before``, of one shape."""
    entered, left = before.flatten()[:_MOST].double(), after.flatten()[:_MOST].double()
    if not left.numel():
        return False
    _, group = torch.unique(left, return_inverse=True)
    low, high = (
        torch.zeros_like(entered).scatter_reduce(0, group, entered, way, include_self=False) for way in ("amin", "amax")
    )
    if float((low < high)[group].double().mean()) >= _SHARE:
        return True
    return bool(_step(left)) and _step(entered) == 0


def _step(values: Tensor) -> float | None:
    """Return the step of the grid on which all ``values`` [n] lie: the greatest common divisor of distances between
    neighbours; 0 where there is none, None where that cannot be told."""
    give = _ROUNDOFF * float(values.abs().max())
    apart = values.sort().values.diff()
    apart = apart[apart > give].sort().values[:_LOOKED_AT]
    if len(apart) < _FEWEST or not math.isfinite(give):
        return None
    step = 0.0
    for rest in apart[:_FEWEST].tolist():
        while rest > _FINEST * give / 2:
            step, rest = rest, abs(step - rest * round(step / rest))
    if step == 0:
        return 0.0
    for count in (4, 8, 16, 32, 64, 128, 256, len(apart)):  # the nearest first: longer distances tell more exactly
        steps = (apart[:count] / step).round()
        step = float((apart[:count] * steps).sum() / steps.square().sum())
    return step if step > _FINEST * give and bool(((apart - step * steps).abs() <= 4 * give).all()) else 0.0
