"""Consecutive numbers for the codes that occur in a list."""

from __future__ import annotations

import torch
from torch import Tensor

_SPARSE = 8
"""Codes that may lie in the range for each one given; in a wider range sorting takes less time and memory."""


def numbered(codes: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """Return the distinct ``codes`` [n], which lie in [0, below), in ascending order, and the place of every code among
    them [n]: what ``torch.unique`` returns, without sorting where the range is narrow."""
    if below > _SPARSE * len(codes):
        values, places = torch.unique(codes, return_inverse=True)
        return values, places
    present = torch.zeros(below, dtype=torch.bool, device=codes.device)
    present[codes] = True
    place = present.cumsum(0)
    return present.nonzero().squeeze(1), place[codes].sub_(1)
