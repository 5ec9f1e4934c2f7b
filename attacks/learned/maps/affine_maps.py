"""Maps that mix the columns of rows: ridge regressions, rotations, and lines after a curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.row_map import MOST_COLUMNS, WIDE, Learner, RowMap
from fglaudit.attacks.learned.maps.unrelated import unrelated

RIDGES = (1e-9, 1e-5, 1e-2)
"""Relative to the mean square of the columns."""
_MOST_TURNED = 2048
"""Columns of which a rotation is told by a singular value decomposition."""
_ENOUGH = 3
"""Rows per column beyond which an affine map needs no more."""


@dataclass(frozen=True)
class _Affine:
    matrix: Tensor
    center: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return (sent - self.center) @ self.matrix + self.shift


def linear_map(matrix: Tensor) -> RowMap:
    """Return the map of rows by ``matrix`` [D, D]."""
    return _Affine(matrix, torch.zeros_like(matrix[0]), torch.zeros_like(matrix[0]))


def affine(plain: Tensor, sent: Tensor, ridge: float) -> RowMap:
    """Return the ridge regression of ``plain`` on ``sent``, with an intercept."""
    most = _ENOUGH * sent.shape[1] + 64
    plain, sent = plain[:most], sent[:most]
    center, shift = sent.mean(0), plain.mean(0)
    y, z = sent - center, plain - shift
    size = (ridge * y.square().sum() / max(1, min(y.shape))).clamp(min=1e-30)
    if len(y) >= y.shape[1]:
        gram = y.T @ y
        matrix = _solved(gram, size, y.T @ z)
    else:
        matrix = y.T @ _solved(y @ y.T, size, z)
    return _Affine(matrix, center, shift)


def regression(ridge: float) -> Learner:
    """Return the learner of :func:`affine` with this ridge."""

    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        fits = 1 < plain.shape[1] <= MOST_COLUMNS and len(plain) > 2
        return affine(plain, sent, ridge) if fits else None

    return learned


def _solved(gram: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
    """Return ``(gram + ridge I)^-1 right``; by least squares where that is singular."""
    system = gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solution, info = torch.linalg.solve_ex(system, right)
    solved: Tensor = solution if int(info.item()) == 0 else torch.linalg.pinv(system) @ right
    return solved


def orthogonal(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the orthogonal map with the least error (Procrustes; Schoenemann, Psychometrika 31, 1966)."""
    if not 1 < plain.shape[1] <= _MOST_TURNED or len(plain) < 3:
        return None
    center, shift = sent.mean(0), plain.mean(0)
    return _Affine(_turn(sent - center, plain - shift), center, shift)


def rotation(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the orthogonal map with the least error that leaves 0 where it is: one row fewer tells it."""
    if not 1 < plain.shape[1] <= _MOST_TURNED or len(plain) < 2:
        return None
    return _Affine(_turn(sent, plain), torch.zeros_like(sent[0]), torch.zeros_like(plain[0]))


def _turn(sent: Tensor, plain: Tensor) -> Tensor:
    """Return the orthogonal matrix that takes ``sent`` closest to ``plain`` [n, D]; of few wide rows only as far as
    these reach, and 0 beyond."""
    if sent.shape[1] > WIDE and 2 * len(sent) < sent.shape[1]:
        (q, r), (p, s) = torch.linalg.qr(sent.T), torch.linalg.qr(plain.T)
        u, _, v = torch.linalg.svd(r @ s.T)
        near: Tensor = (q @ u) @ (v @ p.T)
        return near
    u, _, v = torch.linalg.svd(sent.T @ plain, full_matrices=False)
    turned: Tensor = u @ v
    return turned


def curved(curve: Callable[[Tensor], Tensor], low: float, high: float) -> Learner:
    """Return the learner of an affine map after ``curve``, for entries between ``low`` and ``high``."""

    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        fits = 1 < plain.shape[1] <= MOST_COLUMNS and len(plain) > plain.shape[1]
        if not fits or not bool(((sent >= low) & (sent <= high)).all()) or unrelated(plain, curve(sent)):
            return None
        after = affine(plain, curve(sent), RIDGES[0])
        return lambda rows: after(curve(rows))

    return learned
