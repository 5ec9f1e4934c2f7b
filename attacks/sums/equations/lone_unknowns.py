"""Unknowns that stand alone in an equation, then those that are alone once these are known, and so on.

Each is determined, and what is left of the equations determines exactly the rest: dividing the row space by ``e_j``
takes column j away. In the parts of sums that a server sees most neighbours fall to this, and no matrix is decomposed
for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.sums.equations.gram_blocks import Entries
from fglaudit.nn.sparse import SparseMatrix

_LOOSER = 16.0
"""How many times looser than at first an equation may be that still determines an unknown: errors add up along a chain
of equations, and of all equations together the best is less loose."""


@dataclass(frozen=True)
class Alone:
    """What fell, and what is left.

    Attributes:
        columns: the unknowns that fell [n].
        change: what solves their equations [n, F].
        error: how far errors of the values carry them [n].
        entries: of the equations that are left.
        values, tolerance: of all equations [R, F], the unknowns that fell subtracted.
    """

    columns: Tensor
    change: Tensor
    error: Tensor
    entries: Entries
    values: Tensor
    tolerance: Tensor


def lone_unknowns(entries: Entries, values: Tensor, tolerance: Tensor, asked: Tensor) -> Alone:
    """Solve for the unknowns that fall, in equations of ``values`` [R, F] known up to ``tolerance`` [R, F].

    Args:
        asked: equations without noise [R]; others determine nothing.
    """
    values, tolerance = values.clone(), tolerance.clone()
    limit = _LOOSER * tolerance.amax(1)
    found = [(entries.columns.new_zeros(0), values.new_zeros(0, values.shape[1]), values.new_zeros(0))]
    while len(at := _alone(entries, tolerance, limit, asked)):
        row, factor, columns = entries.rows[at], entries.values[at, None], entries.columns[at]
        change, loose = values[row] / factor, tolerance[row] / factor.abs()
        found.append((columns, change, loose.amax(1)))
        number = torch.full((int(entries.columns.max()) + 1,), -1, device=columns.device)
        number[columns] = torch.arange(len(columns), device=columns.device)
        fell = number[entries.columns] >= 0
        touched, place = torch.unique(entries.rows[fell], return_inverse=True)
        terms, weights = (place, number[entries.columns[fell]]), entries.values[fell]
        shape = len(touched), len(columns)
        values[touched] -= SparseMatrix.from_entries(*terms, weights, shape) @ change
        tolerance[touched] += SparseMatrix.from_entries(*terms, weights.abs(), shape) @ loose
        entries = Entries(*(part[~fell] for part in entries))
    columns, change, error = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Alone(columns, change, error, entries, values, tolerance)


def _alone(entries: Entries, tolerance: Tensor, limit: Tensor, asked: Tensor) -> Tensor:
    """Return which entries [n] are alone in their equation, for every unknown the one that determines it best."""
    terms = torch.bincount(entries.rows, minlength=len(asked))
    usable = asked & (terms == 1) & (tolerance.amax(1) <= limit)
    at = usable[entries.rows].nonzero().squeeze(1)
    loose = tolerance[entries.rows[at]].amax(1) / entries.values[at].abs()
    at = at[loose.argsort(stable=True)]
    at = at[entries.columns[at].argsort(stable=True)]
    first = torch.ones(len(at), dtype=torch.bool, device=at.device)
    first[1:] = entries.columns[at].diff() != 0
    return at[first]
