"""Systems ``(B B' + r) z = v`` of a sparse matrix B by connected component, and the unit vectors in its row space.

B has few entries and more columns than rows, so that ``B B'`` is far smaller than B. Rows may depend on each other: a
small ridge lets every block be factorised (Cholesky), and refining takes its effect away again, but for directions in
which B is next to nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_RIDGE = 1e-12
"""Relative to the largest sum of a row of ``|B B'|``, which no eigenvalue exceeds."""
_REFINED = 1
"""Times. Each leaves ``ridge / (s^2 + ridge)`` of what is missing along a singular value s of B."""
_NEAR = 0.05
"""A unit vector is looked at closely if, by the inverse, the square of its distance to the row space is below this. The
inverse is right to a few digits alone where rows depend on each other."""
_RANK = 1e-10
"""Singular values below this share of the largest are rounding."""
_INSIDE = 1e-8
"""A unit vector counts as inside the row space when the square of its distance to it is below this."""


class Entries(NamedTuple):
    """Row, column and value of each entry of B [T], ascending by column."""

    rows: Tensor
    columns: Tensor
    values: Tensor


@dataclass(frozen=True)
class GramBlocks:
    """b components of h rows each.

    Attributes:
        rows: of B [b, h].
        entries: of B in these rows, numbered from 0 to b h - 1.
        gram: ``B B'`` [b, h, h].
        ridge: r [b].
        factor: of gram and the ridge, or a small one [b, h, h], lower.
    """

    rows: Tensor
    entries: Entries
    gram: Tensor
    ridge: Tensor
    factor: Tensor

    @staticmethod
    def of(entries: Entries, rows: Tensor, num_rows: int) -> GramBlocks:
        """Factorise the components of ``rows`` [b, h] of B with ``num_rows`` R, without a ridge."""
        number = torch.full((num_rows,), -1, device=rows.device)
        number[rows] = torch.arange(rows.numel(), device=rows.device).view_as(rows)
        inner = Entries(number[entries.rows], entries.columns, entries.values)
        inner = Entries(*(part[inner.rows >= 0] for part in inner))
        first, second, place = _pairs(inner, rows.shape[1])
        gram = entries.values.new_zeros(rows.numel() * rows.shape[1])
        gram.index_add_(0, place, inner.values[first] * inner.values[second])
        gram = gram.view(*rows.shape, -1)
        return GramBlocks(rows, inner, gram, gram.new_zeros(len(gram)), _factor(gram, gram.new_zeros(len(gram))))

    def with_ridge(self, ridge: Tensor) -> GramBlocks:
        """Return the same with another ``ridge`` [b]."""
        return dataclasses.replace(self, ridge=ridge, factor=_factor(self.gram, ridge)) if bool(ridge.any()) else self

    def solve(self, right: Tensor) -> Tensor:
        """Return z [b, h, n] for v = ``right`` [b, h, n]; of several the shortest."""
        found = torch.cholesky_solve(right, self.factor)
        for _ in range(_REFINED):
            left = right - self.gram @ found - self.ridge[:, None, None] * found
            found += torch.cholesky_solve(left, self.factor)
        return found

    def unit_vectors(self, num_columns: int, tolerance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns [n] of B whose unit vectors are combinations of its rows, and how far errors of the values
        of rows, of up to ``tolerance`` [R, F], carry such a combination [n]. There must be no ridge."""
        rows, columns, values = self.entries
        height = self.rows.shape[1]
        first, second, place = _pairs(self.entries, height)
        inverse = torch.cholesky_inverse(self.factor).flatten()[place]
        inside = values.new_zeros(num_columns).index_add_(0, columns[first], values[first] * values[second] * inverse)
        near = inside > 1 - _NEAR
        asked = near.nonzero().squeeze(1)
        # Their columns of B, side by side in every block that has any.
        at = near[columns].nonzero().squeeze(1)
        block = torch.zeros_like(near, dtype=torch.long)
        block[columns[at]] = torch.div(rows[at], height, rounding_mode="floor")
        used, which, counts = torch.unique(block[asked], return_inverse=True, return_counts=True)
        order = which.argsort(stable=True)
        slot = torch.empty_like(order)
        slot[order] = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[which[order]]
        number = near.long().cumsum(0)[columns[at]] - 1  # of the column among those asked
        right = values.new_zeros(len(used), height, int(counts.max().item()) if len(counts) else 0)
        right[which[number], rows[at] % height, slot[number]] = values[at]
        part = dataclasses.replace(self, gram=self.gram[used], ridge=self.ridge[used], factor=self.factor[used])
        multipliers = part.solve(right)
        away = 1 - (multipliers * (2 * right - part.gram @ multipliers)).sum(1)[which, slot]
        error = (multipliers.abs().mT @ tolerance[self.rows[used]]).amax(2)[which, slot]
        return asked[away <= _INSIDE], error[away <= _INSIDE]


def decomposed(matrix: Tensor, right: Tensor, tolerance: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same of one component with more rows than columns, ``matrix`` [h, w], by its singular values:
    ``B' z`` [w, n] for v = ``right`` [h, n], which unit vectors are combinations of rows [w], and how far errors of up
    to ``tolerance`` [h, n] carry each [w], infinite for others."""
    left, singular, axes = torch.linalg.svd(matrix, full_matrices=False)
    seen = singular > _RANK * singular[0]
    gain = torch.where(seen, singular / (singular.square() + ridge), 0.0)
    solve = (axes.T * gain) @ left.T
    inside = (axes.square() * seen[:, None]).sum(0) > 1 - _INSIDE
    return solve @ right, inside, torch.where(inside, (solve.abs() @ tolerance).amax(1), torch.inf)


def _factor(gram: Tensor, ridge: Tensor) -> Tensor:
    """Return the Cholesky factors of ``gram`` [b, h, h] and ``ridge`` [b], or a small one."""
    least = _RIDGE * gram.abs().sum(2).amax(1)
    summed = gram.clone()
    summed.diagonal(dim1=1, dim2=2).add_(torch.maximum(ridge, least)[:, None])
    factor: Tensor = torch.linalg.cholesky(summed)
    return factor


def _pairs(entries: Entries, height: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return all pairs of entries of one column [p], [p], and where their product stands among blocks of ``height``."""
    rows, columns, _ = entries
    _, which, counts = torch.unique_consecutive(columns, return_inverse=True, return_counts=True)
    sizes, start = counts[which], (counts.cumsum(0) - counts)[which]
    first = torch.repeat_interleave(torch.arange(len(columns), device=columns.device), sizes)
    within = torch.arange(len(first), device=columns.device) - (sizes.cumsum(0) - sizes)[first]
    second = start[first] + within
    return first, second, rows[first] * height + rows[second] % height
