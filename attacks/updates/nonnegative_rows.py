"""Sparse, non-negative rows from the space that they span: a separable non-negative matrix factorisation.

Given ``G = S' D`` [F, m], S [R, F] non-negative, D [R, m] of rank R. Row f of G, of a word, is the combination
``sum_r S_rf D_r``: a point in the cone that the D_r span. A word that a single row of S has lies on an edge of that
cone. If every row has a word of its own, the edges are exactly the D_r ("separable", Donoho and Stodden 2003), and the
coordinates of all words in them are S, up to the length of each row. No list of candidates is searched: the edges are
found by successive projections (Araujo et al. 2001; Gillis and Vavasis 2014) of the words, scaled into a plane by a
functional that is positive on all of them (a linear programme with R unknowns), after their covariance is made round.

What this cannot do: a row whose words all occur in another row too leaves that other row without an edge; what is found
in its place is the difference of the two. Rows that are equal up to length are one row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

_CLEAR, _SEEN = 30.0, 6.0
"""A word occurs if, projected on the span, it is this many times longer than errors are: enough for directions to be
exact where errors are those of rounding; under noise, enough to tell words from none."""
_OF_EDGE = 1.15
"""A direction counts if its singular value is this many times the largest of errors alone."""
_OF_SQUARES = 1e-7
"""Singular values are roots of those of a product, which are seen to this share of the largest one."""
_ABSENT = 1e-3
"""Entries below this share of a row's largest one are 0: exactness is asked for to the same share."""
MOST_ROWS = 256
"""Beyond this rank no row is looked for: the errors of so many edges exceed what is asked for."""


class FoundRows(NamedTuple):
    """Rows that span what was given.

    Attributes:
        rows: [R', F], non-negative, of largest entry 1; those with the most words of their own first.
        rank: R, as far as it is seen through the errors.
        limit: the largest rank that could be seen.
    """

    rows: Tensor
    rank: int
    limit: int


def nonnegative_rows(matrix: Tensor, error: float) -> FoundRows:
    """Return the sparse non-negative rows whose combinations the columns of ``matrix`` [F, m] are.

    Args:
        error: standard deviation of the entries' errors.
    """
    features, width = matrix.shape
    limit = min(features, width)
    none = FoundRows(matrix.new_zeros(0, features), 0, limit)
    squares, columns = torch.linalg.eigh(matrix.double().T @ matrix.double())
    values, axes = squares.clamp(min=0).sqrt().flip(0)[:limit], columns.T.flip(0)
    least = max(_OF_EDGE * error * (features**0.5 + width**0.5), _OF_SQUARES * float(values[0].item()))
    rank = int((values > least).sum().item())
    if rank in (0, limit) or rank > MOST_ROWS:
        return none._replace(rank=rank)  # errors, or more rows than there are directions: no space is left out
    projected = matrix.double() @ axes[:rank].T
    length = projected.norm(dim=1) / max(error, 1e-300) / rank**0.5
    occurs = (length > _CLEAR).nonzero().squeeze(1)
    if len(occurs) < rank:
        occurs = (length > _SEEN).nonzero().squeeze(1)
    if len(occurs) < rank:
        return none._replace(rank=rank)
    points = projected[occurs].numpy()
    edges = _edges(points / np.linalg.norm(points, axis=1, keepdims=True))
    if edges is None:
        return none._replace(rank=rank)
    share = np.linalg.lstsq(points[edges].T, points.T, rcond=None)[0]
    share = share / np.abs(share).max(axis=1, keepdims=True).clip(min=1e-300)
    share[np.abs(share) < _ABSENT] = 0
    own = ((share != 0).sum(axis=0) == 1) & (share != 0)
    order = np.argsort(-own.sum(axis=1), kind="stable")
    rows = matrix.new_zeros(rank, features, dtype=torch.double)
    rows[:, occurs] = torch.from_numpy(share[order].clip(min=0))
    return FoundRows(rows[rows.any(1)], rank, limit)


def _edges(points: np.ndarray) -> list[int] | None:
    """Return which of ``points`` [W, R], of length 1, lie on the R edges of their cone; None if they lie in no cone."""
    found = linprog(points.sum(0), A_ub=-points, b_ub=-np.ones(len(points)), bounds=(None, None), method="highs")
    if found.status != 0:
        return None
    flat = points / (points @ found.x)[:, None]
    _, values, axes = np.linalg.svd(flat, full_matrices=False)
    rest = flat @ axes.T * (len(flat) ** 0.5 / values.clip(min=1e-12 * values[0]))
    picked = []
    for _ in range(points.shape[1]):
        index = int(np.square(rest).sum(axis=1).argmax())
        direction = rest[index] / max(float(np.linalg.norm(rest[index])), 1e-300)
        rest = rest - np.outer(rest @ direction, direction)
        picked.append(index)
    return picked
