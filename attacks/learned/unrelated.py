"""Whether rows and what was sent in their place have no linear dependence at all, as with a one-time pad.

Learners of linear maps are dear and find nothing in noise. Of independent rows the squared entries of the
cross-covariance add up to what the two spreads alone make them; of a linear map of n rows of D columns to ``1 + n / D``
times that (D as far as columns vary alike), and of one that holds for a tenth of the columns to ``1 + 0.1 n / D``.
"""

from __future__ import annotations

from torch import Tensor

_FEWEST = 64
"""Rows below which the share says nothing, as do fewer than a tenth of the columns."""
_MORE = 1.02


def unrelated(plain: Tensor, sent: Tensor) -> bool:
    """Return whether ``sent`` [n, D'] shows no linear dependence on ``plain`` [n, D]."""
    if len(plain) < max(_FEWEST, plain.shape[1] // 10):
        return False
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    alone = z.square().sum() * y.square().sum() / len(z)
    return bool((z.T @ y).square().sum() < _MORE * alone)
