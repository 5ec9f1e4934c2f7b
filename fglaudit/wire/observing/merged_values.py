"""Do different values leave as the same one? Rounding, zeros in place of the smallest, numbers that are dropped: noise
never does that, so it was done to noisy values, or beside them, and no size of noise can be told from what left."""

from __future__ import annotations

import torch
from torch import Tensor

_SHARE = 0.1
"""Of values, from which on a comparison with stated noise shows no more than that something else was done."""
_MOST = 2**20


def merges(before: Tensor, after: Tensor) -> bool:
    """Whether many entries of ``after`` are the same number, made of different entries of ``before``, of one shape."""
    entered, left = before.flatten()[:_MOST].double(), after.flatten()[:_MOST].double()
    if not left.numel():
        return False
    _, group = torch.unique(left, return_inverse=True)
    low, high = (
        torch.zeros_like(entered).scatter_reduce(0, group, entered, way, include_self=False) for way in ("amin", "amax")
    )
    return float((low < high)[group].double().mean()) >= _SHARE
