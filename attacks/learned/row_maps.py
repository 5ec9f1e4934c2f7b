"""Maps of single rows, learned from pairs: what was sent [n, D] -> what it was made of [n, D].

Every learner is given pairs and returns a function; the one with the least error on pairs that it was not given is
taken (:func:`best_map`). Together they undo whatever a fixed code does to entries one by one (offsets, factors, signs,
monotone curves, tables, bits, remainders), and to rows as a whole (orders of columns, rotations, any affine map).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

RowMap = Callable[[Tensor], Tensor]
_RIDGES = (1e-9, 1e-5, 1e-2)
"""Relative to the mean square of the columns."""
_KNOTS = 2**20
"""Entries that a table keeps."""
_MOST_COLUMNS = 4096
_ENOUGH = 3
"""Rows per column beyond which an affine map needs no more."""


@dataclass(frozen=True)
class Learned:
    """A learned map with its error.

    Attributes:
        error: mean square of what it leaves, relative to that of the rows around their mean; on pairs not learned from.
    """

    name: str
    error: float
    apply: RowMap


def identity(sent: Tensor) -> Tensor:
    """Return what was sent."""
    return sent


@dataclass(frozen=True)
class _Columnwise:
    """``z = factor * y[order] + shift``, column by column."""

    order: Tensor
    factor: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return sent[:, self.order] * self.factor + self.shift


@dataclass(frozen=True)
class _Affine:
    matrix: Tensor
    center: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return (sent - self.center) @ self.matrix + self.shift


@dataclass(frozen=True)
class _Table:
    """Entries by the nearest value that was seen, or between the two nearest ones on a line."""

    sent: Tensor
    plain: Tensor
    between: bool

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.reshape(-1).contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, len(self.sent) - 1)
        low, high = self.sent[right - 1], self.sent[right]
        share = ((flat - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
        share = share if self.between else share.round()
        return torch.lerp(self.plain[right - 1], self.plain[right], share).reshape(sent.shape)


@dataclass(frozen=True)
class _ColumnTables:
    """The nearest value that was seen in the same column: sorted [D, n]."""

    sent: Tensor
    plain: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.T.contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, self.sent.shape[1] - 1)
        nearer = flat - self.sent.gather(1, right - 1) <= self.sent.gather(1, right) - flat
        return self.plain.gather(1, right - nearer.long()).T


@dataclass(frozen=True)
class _Remainder:
    step: float

    def __call__(self, sent: Tensor) -> Tensor:
        return sent - self.step * (sent / self.step).round()


def _columnwise(plain: Tensor, sent: Tensor, order: Tensor) -> _Columnwise:
    y = sent[:, order]
    cy, cz = y - y.mean(0), plain - plain.mean(0)
    factor = (cy * cz).sum(0) / cy.square().sum(0).clamp(min=1e-300)
    return _Columnwise(order, factor, plain.mean(0) - factor * y.mean(0))


def matched_columns(plain: Tensor, sent: Tensor) -> Tensor:
    """Return for every column of ``plain`` the one of ``sent`` that goes with it best [D], whatever its sign."""
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    z = z / z.norm(dim=0).clamp(min=1e-300)
    y = y / y.norm(dim=0).clamp(min=1e-300)
    best: Tensor = (z.T @ y).abs().argmax(1)
    return best


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


def _solved(gram: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
    """Return ``(gram + ridge I)^-1 right``; by least squares where that is singular."""
    system = gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solution, info = torch.linalg.solve_ex(system, right)
    solved: Tensor = solution if int(info.item()) == 0 else torch.linalg.pinv(system) @ right
    return solved


def orthogonal(plain: Tensor, sent: Tensor) -> RowMap:
    """Return the orthogonal map with the least error (Procrustes; Schoenemann, Psychometrika 31, 1966)."""
    center, shift = sent.mean(0), plain.mean(0)
    u, _, v = torch.linalg.svd((sent - center).T @ (plain - shift), full_matrices=False)
    return _Affine(u @ v, center, shift)


def _tables(plain: Tensor, sent: Tensor) -> list[tuple[str, RowMap]]:
    y, z = sent.reshape(-1), plain.reshape(-1)
    if len(y) > _KNOTS:
        pick = torch.linspace(0, len(y) - 1, _KNOTS, device=y.device, dtype=torch.double).long()
        y, z = y[pick], z[pick]
    order = y.argsort()
    found: list[tuple[str, RowMap]] = [
        ("monotone map", _Table(y[order], z[order], True)),
        ("table", _Table(y[order], z[order], False)),
    ]
    if len(sent) >= 16:
        place = sent.argsort(dim=0)
        by_column = _ColumnTables(sent.gather(0, place).T.contiguous(), plain.gather(0, place).T.contiguous())
        found.append(("table by column", by_column))
    return found


def _remainder(plain: Tensor, sent: Tensor) -> list[tuple[str, RowMap]]:
    """Return the remainder map if what was added are multiples of one step."""
    added = (sent - plain).abs().reshape(-1)
    large = added[added > 1e-3]
    if len(large) == 0:
        return []
    step = float(large.min().item())
    whole = large / step
    if float((whole - whole.round()).abs().quantile(0.9) if len(whole) <= 2**20 else 0.0) > 1e-2:
        return []
    step = float((large / whole.round()).median().item())
    return [("remainder", _Remainder(step))]


def relative_error(plain: Tensor, cleaned: Tensor) -> float:
    """Return the mean square of ``cleaned - plain`` relative to that of ``plain`` around its column means."""
    spread = (plain - plain.mean(0)).square().mean() if len(plain) > 1 else plain.square().mean()
    return float(((cleaned - plain).square().mean() / spread.clamp(min=1e-300)).item())


def learners(plain: Tensor, sent: Tensor) -> list[tuple[str, RowMap]]:
    """Return the map that every learner makes of the pairs (plain, sent) [n, D]."""
    width = plain.shape[1]
    tried: list[tuple[str, RowMap]] = [("nothing", identity)]
    tried.append(("affine by column", _columnwise(plain, sent, torch.arange(width, device=sent.device))))
    tried += _remainder(plain, sent)
    tried += _tables(plain, sent)
    if 1 < width <= _MOST_COLUMNS and len(plain) > 2:
        tried.append(("order of columns", _columnwise(plain, sent, matched_columns(plain, sent))))
        tried += [(f"affine, ridge {ridge:g}", affine(plain, sent, ridge)) for ridge in _RIDGES]
        tried.append(("orthogonal", orthogonal(plain, sent)))
    return tried


def best_map(plain: Tensor, sent: Tensor, held_plain: Tensor, held_sent: Tensor) -> Learned:
    """Return the map from ``sent`` to ``plain`` [n, D] with the least error on the held-out pairs [m, D]."""
    tried = learners(plain, sent)
    scored = [Learned(name, relative_error(held_plain, map_(held_sent)), map_) for name, map_ in tried]
    return min((s for s in scored if s.error == s.error), key=lambda s: s.error, default=scored[0])
