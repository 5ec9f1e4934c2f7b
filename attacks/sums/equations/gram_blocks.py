"""Systems ``(B B' + r) z = v`` of a sparse matrix B by connected component, and the unit vectors in its row space.

B has few entries and more columns than rows, so that ``B B'`` is far smaller than B. Rows may depend on each other: a
small ridge lets every block be factorised, and refining takes its effect away again, but for directions in which B is
next to nothing. Many small blocks are factorised at once (Cholesky), a large one as a sparse matrix: in sums over
neighbours it fills up little, whereas a dense one grows with the square of its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu
from torch import Tensor

from fglaudit.nn.sparse import SparseMatrix
from fglaudit.rng import derive

_DENSE = 512
"""Blocks of more rows than this are factorised as sparse matrices,"""
_LARGEST_DENSE = 8192
_FULL = 1 / 3
"""unless this share of the factors' entries is filled and they have at most that many rows: dense ones solve faster."""
_RIDGE = 1e-12
"""Relative to the largest sum of a row of ``|B B'|``, which no eigenvalue exceeds."""
_REFINED = 1
"""Times. Each leaves ``ridge / (s^2 + ridge)`` of what is missing along a singular value s of B."""
_RANK = 1e-10
"""Singular values below this share of the largest are rounding."""
_INSIDE = 1e-8
"""A unit vector counts as inside the row space when the square of its distance to it is below this."""
_PROBES = 16
"""Random vectors of which the part outside the row space shows the columns to look at."""
_NEAR = 100 * _INSIDE
"""A column is looked at if the squares of the probes' parts outside the row space are below this there on average: they
are expected to be the square of its unit vector's distance to the row space."""
_AT_ONCE = 2**24
"""Numbers of a right side, of many unit vectors."""


class Entries(NamedTuple):
    """Row, column and value of each entry of B [T], ascending by column."""

    rows: Tensor
    columns: Tensor
    values: Tensor


@dataclass(frozen=True)
class GramBlocks:
    """b components of h rows each, w columns of B in all.

    Attributes:
        rows: of B [b, h].
        columns: of B [w], ascending.
        entries: of B in these rows and columns, numbered from 0.
        matrix: the same [b h, w].
        ridge: r [b].
        factorised: takes v [b h, n] to a solution z with the ridge, or a small one.
    """

    rows: Tensor
    columns: Tensor
    entries: Entries
    matrix: SparseMatrix
    ridge: Tensor
    factorised: Callable[[Tensor], Tensor]

    @staticmethod
    def of(entries: Entries, rows: Tensor, num_rows: int) -> GramBlocks:
        """Factorise the components of ``rows`` [b, h] of B with ``num_rows`` R, without a ridge."""
        number = torch.full((num_rows,), -1, device=rows.device)
        number[rows] = torch.arange(rows.numel(), device=rows.device).view_as(rows)
        inside = number[entries.rows] >= 0
        columns, place = torch.unique_consecutive(entries.columns[inside], return_inverse=True)
        inner = Entries(number[entries.rows[inside]], place, entries.values[inside])
        matrix = SparseMatrix.from_entries(*inner, (rows.numel(), len(columns)))
        ridge = inner.values.new_zeros(len(rows))
        return GramBlocks(rows, columns, inner, matrix, ridge, _factorise(inner, ridge, rows.shape[1]))

    def with_ridge(self, ridge: Tensor) -> GramBlocks:
        """Return the same with another ``ridge`` [b]."""
        if not bool(ridge.any()):
            return self
        factorised = _factorise(self.entries, ridge, self.rows.shape[1])
        return dataclasses.replace(self, ridge=ridge, factorised=factorised)

    def solve(self, right: Tensor) -> Tensor:
        """Return z [b h, n] for v = ``right`` [b h, n]; of several the shortest."""
        found = self.factorised(right)
        ridge = self.ridge.repeat_interleave(self.rows.shape[1])[:, None]
        for _ in range(_REFINED):
            found = found + self.factorised(right - self._gram(found) - ridge * found)
        return found

    def unit_vectors(self, tolerance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns [n] of B whose unit vectors are combinations of its rows, and how far errors of the values
        of rows, of up to ``tolerance`` [R, F], carry such a combination [n]. There must be no ridge."""
        asked = self._near()
        # Their columns of B, side by side in every block that has any.
        number = torch.full_like(self.columns, -1)
        number[asked] = torch.arange(len(asked), device=asked.device)
        at = (number[self.entries.columns] >= 0).nonzero().squeeze(1)
        row, values, number = self.entries.rows[at], self.entries.values[at], number[self.entries.columns[at]]
        height = self.rows.shape[1]
        block = torch.zeros_like(asked)
        block[number] = torch.div(row, height, rounding_mode="floor")
        order = block.argsort(stable=True)
        counts = torch.bincount(block, minlength=len(self.rows))
        slot = torch.empty_like(order)
        slot[order] = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[block[order]]
        away, error = values.new_empty(2, len(asked))
        width = max(1, _AT_ONCE // self.rows.numel())
        loose = tolerance[self.rows]
        for start in range(0, int(slot.max().item()) + 1 if len(asked) else 0, width):
            these = (slot >= start) & (slot < start + width)
            among = these[number]
            right = values.new_zeros(self.rows.numel(), int(slot[these].max().item()) + 1 - start)
            right[row[among], slot[number[among]] - start] = values[among]
            multipliers = self.solve(right)
            inside = multipliers * (2 * right - self._gram(multipliers))
            where = block[these], slot[these] - start
            away[these] = 1 - inside.view(*self.rows.shape, -1).sum(1)[where]
            error[these] = (multipliers.abs_().view(*self.rows.shape, -1).mT @ loose).amax(2)[where]
        kept = away <= _INSIDE
        return self.columns[asked[kept]], error[kept]

    def _near(self) -> Tensor:
        """Return the places [n] of all columns whose unit vectors lie in the row space, and of few others."""
        shape = len(self.columns), _PROBES
        probes = torch.randn(shape, dtype=torch.double, generator=derive(0, "probes")).to(self.rows.device)
        outside = probes - self.matrix.T @ self.solve(self.matrix @ probes)
        return (outside.square().mean(1) <= _NEAR).nonzero().squeeze(1)

    def _gram(self, vectors: Tensor) -> Tensor:
        """Return ``B B'`` times ``vectors`` [b h, n]."""
        return self.matrix @ (self.matrix.T @ vectors)


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


def _factorise(entries: Entries, ridge: Tensor, height: int) -> Callable[[Tensor], Tensor]:
    """Return what solves systems [b h, n] of ``B B'`` and ``ridge`` [b], or a small one."""
    first, second = _pairs(entries)
    products = entries.values[first] * entries.values[second]
    row, column = entries.rows[first], entries.rows[second]
    sums = products.new_zeros(len(ridge) * height).index_add_(0, row, products.abs())
    ridge = torch.maximum(ridge, _RIDGE * sums.view(-1, height).amax(1))
    if height > _DENSE:
        factor = _sparse_factor(row, column, products, ridge.repeat_interleave(height))
        if height > _LARGEST_DENSE or factor.nnz < _FULL * height**2:
            return lambda right: torch.from_numpy(factor.solve(right.cpu().numpy())).to(right.device)
    gram = products.new_zeros(len(ridge) * height**2).index_add_(0, row * height + column % height, products)
    gram = gram.view(-1, height, height)
    gram.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
    lower = torch.linalg.cholesky(gram)
    return lambda right: torch.cholesky_solve(right.view(len(lower), height, -1), lower).flatten(0, 1)


def _sparse_factor(row: Tensor, column: Tensor, products: Tensor, ridge: Tensor) -> SuperLU:
    """Return the factors of a sum of ``products`` at ``row``, ``column`` [p] and of ``ridge`` on the diagonal [h].

    A positive definite matrix needs no pivoting, so that rows and columns are eliminated in the order that fills up
    least.
    """
    diagonal = torch.arange(len(ridge), device=row.device)
    places = torch.cat([row, diagonal]).cpu().numpy(), torch.cat([column, diagonal]).cpu().numpy()
    gram = csc_array((torch.cat([products, ridge]).cpu().numpy(), places), shape=(len(ridge), len(ridge)))
    options = {"SymmetricMode": True}
    return splu(gram, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


def _pairs(entries: Entries) -> tuple[Tensor, Tensor]:
    """Return all pairs of entries of one column [p], [p]."""
    _, which, counts = torch.unique_consecutive(entries.columns, return_inverse=True, return_counts=True)
    sizes, start = counts[which], (counts.cumsum(0) - counts)[which]
    first = torch.repeat_interleave(torch.arange(len(which), device=which.device), sizes)
    within = torch.arange(len(first), device=which.device) - (sizes.cumsum(0) - sizes)[first]
    return first, start[first] + within
