"""The weight of a row in a sum of its neighbourhood, by what the protocol states of ``NeighborSums``."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.structure import NORMALISED, ROW_MEAN, Sums
from fglaudit.view import View


def term_weights(view: View, degrees: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Return ``A_ij`` [E] of the terms j = ``column`` [E] in the sums of i = ``row`` [E], float64.

    Args:
        degrees: of all nodes [N].
    """
    weighting = view.public.structure.of(Sums).weighting
    if weighting == NORMALISED:
        return ((degrees[row] + 1.0) * (degrees[column] + 1.0)).double().rsqrt()
    if weighting == ROW_MEAN:
        return (degrees[row] + 1.0).double().reciprocal()
    return torch.ones(len(row), dtype=torch.double)
