"""The matrix of a k-ary randomised response."""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST = 500.0
"""Beyond this epsilon no answer has lied before the end of time, and its exponential is no number."""


def response_matrix(epsilon: float, classes: int) -> Tensor:
    """Return the chance of every response to every class [C, C]; the identity at epsilon 0, which stands for none."""
    if epsilon == 0:
        return torch.eye(classes)
    keep = 1 / (1 + (classes - 1) * torch.exp(torch.tensor(-min(epsilon, _LARGEST))))
    lie = (1 - keep) / max(1, classes - 1)
    return torch.eye(classes) * (keep - lie) + lie
