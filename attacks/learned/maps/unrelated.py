"""Whether rows and what was sent in their place have no linear dependence at all, as with a one-time pad.

Learners of linear maps are dear and find nothing in noise. Of independent rows the squared entries of the
cross-covariance add up to what the two spreads alone make them; of a linear map of n rows of D columns to ``1 + n / D``
times that (D as far as columns vary alike), and of one that holds for a tenth of the columns to ``1 + 0.1 n / D``.

Secrets that are drawn in every bind leave a dependence in each that the next one lacks. What was sent times the
cross-covariance of other pairs points to the rows if those depend alike: its cosine to them is about
``sqrt(n / (n + D))`` for an orthogonal map, 0.1 for one that holds for a tenth of the columns beside noise, 0.04 for
running sums over 1433 columns, and ``1 / D`` where the two maps are any two rotations.
"""

from __future__ import annotations

import torch
from torch import Tensor

_FEWEST = 64
"""Rows below which the share says nothing, as do fewer than a tenth of the columns."""
_MORE = 1.02
_ALIKE = 0.005
"""Cosine below which pairs of one part say nothing of those of another,"""
_ERRORS = 4.0
"""and how many standard errors it must lie above 0."""
_TESTED = 1024
"""Rows that are looked at, or half as many as there are columns: more tell no more of whether there is anything."""
_ENTRIES = 2**15
"""Held-out entries below which chance may make it more or less than that."""


def unrelated(plain: Tensor, sent: Tensor) -> bool:
    """Return whether ``sent`` [n, D'] shows no linear dependence on ``plain`` [n, D]."""
    if len(plain) < max(_FEWEST, plain.shape[1] // 10):
        return False
    plain, sent = _few(plain), _few(sent)
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    alone = z.square().sum() * y.square().sum() / len(z)
    return bool((z.T @ y).square().sum() < _MORE * alone)


def changing(plain: Tensor, sent: Tensor, held_plain: Tensor, held_sent: Tensor) -> bool:
    """Return whether the linear dependence of ``sent`` on ``plain`` [n, D] is not that of held-out pairs [m, D]."""
    if len(plain) < max(_FEWEST, plain.shape[1] // 10) or held_plain.numel() < _ENTRIES:
        return False
    z, held_z = _standard(_few(plain), _few(held_plain))
    y, held_y = _standard(_few(sent), _few(held_sent))
    told = held_y @ (y.T @ z)
    by_row = (told * held_z).sum(1)
    near = by_row.sum() > _ALIKE * told.norm() * held_z.norm()
    return not bool(near & (by_row.mean() > _ERRORS * by_row.std() / len(by_row) ** 0.5))


def _few(rows: Tensor) -> Tensor:
    return rows[: max(_TESTED, rows.shape[1] // 2)]


def _standard(rows: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """Return columns in units of the deviation of ``rows``, each part around its own means: rows of another kind have
    others."""
    spread = rows.std(0)
    spread = torch.where(spread > 0, spread, 1.0)
    return (rows - rows.mean(0)) / spread, (held - held.mean(0)) / spread
