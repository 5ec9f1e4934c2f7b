"""Maps of entries by one line for all, or by one for each column, in whatever order the columns were sent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.attacks.learned.maps.row_map import MOST_COLUMNS, WIDE, RowMap

_MOST_MATCHED = 2048
"""Columns that an assignment orders."""
_LIKE = 0.5
"""Cosine of columns that may be the same."""


@dataclass(frozen=True)
class _Columnwise:
    """``z = factor * y[order] + shift``, column by column."""

    order: Tensor
    factor: Tensor
    shift: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        return sent[:, self.order] * self.factor + self.shift


def one_affine(plain: Tensor, sent: Tensor) -> RowMap:
    """Return one factor and one shift for all entries."""
    y, z = sent - sent.mean(), plain - plain.mean()
    factor = (y * z).sum() / y.square().sum().clamp(min=1e-300)
    shift = plain.mean() - factor * sent.mean()
    return lambda rows: rows * factor + shift


def _columnwise(plain: Tensor, sent: Tensor, order: Tensor) -> _Columnwise:
    y = sent[:, order]
    cy, cz = y - y.mean(0), plain - plain.mean(0)
    factor = (cy * cz).sum(0) / cy.square().sum(0).clamp(min=1e-300)
    return _Columnwise(order, factor, plain.mean(0) - factor * y.mean(0))


def by_column(plain: Tensor, sent: Tensor) -> RowMap:
    """Return a factor and a shift for every column."""
    return _columnwise(plain, sent, torch.arange(plain.shape[1], device=sent.device))


def ordered(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the order of the columns, each with a factor and a shift of its own."""
    if not 1 < plain.shape[1] <= MOST_COLUMNS or len(plain) < 3:
        return None
    z, y = plain - plain.mean(0), sent - sent.mean(0)
    z = z / z.norm(dim=0).clamp(min=1e-300)
    y = y / y.norm(dim=0).clamp(min=1e-300)
    return _columnwise(plain, sent, (z.T @ y).abs().argmax(1))


def permuted(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the order and the signs of the columns alone, each used once (an assignment with the least squares): few
    rows suffice, since a column that is 0 in all of them still goes to one that is."""
    width = plain.shape[1]
    if not 1 < width <= _MOST_MATCHED:
        return None
    square = plain.square().sum(0)[:, None] + sent.square().sum(0)
    product = plain.T @ sent
    if width > WIDE and not _has_like(plain, sent, product):
        return None
    cost = (square - 2 * product.abs()) + 1e-9 * square.mean() * (product < 0)
    order = torch.from_numpy(linear_sum_assignment(cost.cpu().numpy())[1]).to(sent.device)
    sign = torch.where(product.gather(1, order[:, None]).squeeze(1) < 0, -1.0, 1.0).to(plain)
    return _Columnwise(order, sign, torch.zeros_like(sign))


def _has_like(plain: Tensor, sent: Tensor, product: Tensor) -> bool:
    """Whether most columns that are not 0 have one that looks like them: an assignment of wide rows is dear."""
    size = plain.norm(dim=0)
    like = (product.abs() / sent.norm(dim=0).clamp(min=1e-300)).amax(1)[size > 0] / size[size > 0]
    return len(like) == 0 or float(like.median().item()) > _LIKE


def columns_in_order(order: Tensor, sign: Tensor) -> RowMap:
    """Return the map to columns ``order`` [D] of what was sent, with their signs [D]."""
    return _Columnwise(order, sign, torch.zeros_like(sign))
