"""k-ary randomised response: the chance of every response to every class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LARGEST = 25.0
"""What a larger epsilon is cut to: of 10^10 responses one lies. Were none to, nothing could be accounted at all."""


def keep_probability(epsilon: float, classes: int) -> float:
    """Return with what probability the true one of ``classes`` is the response."""
    return 1 / (1 + (classes - 1) * math.exp(-min(epsilon, _LARGEST)))


def response_matrix(epsilon: float, classes: int) -> Tensor:
    """Return the chance of every response to every class [C, C], float32; the identity at epsilon 0, which stands for
    none."""
    if epsilon == 0:
        return torch.eye(classes)
    keep = keep_probability(epsilon, classes)
    # Lies are the small difference of two numbers near 1: in float32 there are none left from an epsilon of 18 on.
    return torch.full((classes, classes), (1 - keep) / max(1, classes - 1)).fill_diagonal_(keep)
