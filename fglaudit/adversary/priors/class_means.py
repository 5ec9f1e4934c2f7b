"""Mean rows of classes, from rows whose class is known."""

from __future__ import annotations

from torch import Tensor

SHRINK = 1.0
"""How many rows with the mean of all known ones each class mean is shrunk by."""


def class_means(x: Tensor, kinds: Tensor) -> Tensor:
    """Return the mean row of every class [C, F], shrunk towards that of all rows.

    Args:
        x: known rows [R, F].
        kinds: their classes, one-hot [R, C].
    """
    return (kinds.T @ x + SHRINK * x.mean(0)) / (kinds.sum(0).unsqueeze(1) + SHRINK)
