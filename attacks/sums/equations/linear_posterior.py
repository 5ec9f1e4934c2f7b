"""Linear algebra of the equations: the unknown rows that they determine, and the best linear estimate of the rest.

Row j is determined whatever the other rows are if and only if the unit vector e_j lies in the row space of the
coefficient matrix B: if there are multipliers z of the equations with ``B' z = e_j``. The estimate is the posterior
mean of a Gaussian prior of variance v: ``mean + B' z`` with ``(B B' + noise^2 / v) z = values - B mean``; without noise
it is the least change to the prior mean that satisfies all equations, and exact for determined rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.attacks.sums.equations.gram_blocks import Entries, GramBlocks, decomposed
from fglaudit.attacks.sums.equations.lone_unknowns import lone_unknowns
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations, neighbor_equations
from fglaudit.graph import components
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.view import View

HALF = 0.5 + 1e-9
"""Above it an estimated bit is one. One half itself is common, where two neighbours enter all equations alike: that is
no one, and not for the rounding of a solver to decide, which differs with the number of threads."""
_TALL = 256
_TALLER = 1.5
"""Components of more equations than this, and than so many times their unknowns, are decomposed: ``B B'`` is larger
than B, and slower."""
_EXACT = 5e-4
"""Rounding error of a proven row, relative to its largest entry; half of what the scorer allows."""


@dataclass(frozen=True)
class LinearPosterior:
    """Posterior of U unknown rows.

    Attributes:
        mean: the estimate [U, F].
        determined: which rows the equations determine [U].
        error: bound on the rounding error of determined rows [U], infinite for others.
    """

    mean: Tensor
    determined: Tensor
    error: Tensor

    def certain(self, level: float = 0.0) -> Tensor:
        """Return which rows are determined in figures too [U]: rounding moves no entry by more than ``_EXACT`` of the
        row's largest, or of ``level``, the least that an entry of a discrete row is, where that is larger. Of a
        real-valued row that rounding hides nothing is known: it may be zero, or small."""
        size = self.mean.abs().amax(1).clamp(min=level)
        return self.determined & (self.error <= _EXACT * size)


@once_per_view
def posterior_of_sums(view: View, device: torch.device, level: float) -> LinearPosterior:
    """Return the posterior of the rows in the observer's equations, whose non-zero entries are ``level``; of
    real-valued ones it is 1.

    Attacks of one observer share it: where sums overlap, decomposing their matrix takes most of the time that any of
    them takes.
    """
    equations = neighbor_equations(view).to(device)
    prior = feature_prior(view, equations.nodes.cpu())
    scale = level if prior.informed else 0.0
    return linear_posterior(equations, (prior.mean * scale).to(device), (prior.variance * level**2).to(device))


def linear_posterior(equations: NeighborEquations, mean: Tensor, variance: Tensor) -> LinearPosterior:
    """Solve the complete equations (no hidden terms, all coefficients known).

    Args:
        mean: prior mean [U, F], float64.
        variance: prior variance [U, F]; one value per component is used, its mean over unknowns and features.
    """
    shape, entries = (equations.num_rows, equations.num_unknowns), _complete(equations)
    ridge = _noise_to_prior(equations.std, variance, entries, _labels(shape, entries))
    rest = equations.values - SparseMatrix.from_entries(*entries, shape) @ mean
    alone = lone_unknowns(entries, rest, equations.tolerance, ridge == 0)
    entries, rest, tolerance = alone.entries, alone.values, alone.tolerance
    multipliers, found = torch.zeros_like(rest), mean.clone()
    determined = torch.zeros(shape[1], dtype=torch.bool, device=ridge.device)
    error = torch.full((shape[1],), torch.inf, dtype=torch.double, device=ridge.device)
    found[alone.columns] += alone.change
    determined[alone.columns], error[alone.columns] = True, alone.error
    for rows in _components(torch.unique(entries.rows), _labels(shape, entries)):
        if rows.shape[1] > _TALL:
            for each in rows:
                among = torch.isin(entries.rows, each).nonzero().squeeze(1)
                columns, column = torch.unique_consecutive(entries.columns[among], return_inverse=True)
                if len(each) > _TALLER * len(columns):
                    dense = tolerance.new_zeros(len(each), len(columns))
                    dense[torch.searchsorted(each, entries.rows[among]), column] = entries.values[among]
                    change, determined[columns], error[columns] = decomposed(
                        dense, rest[each], tolerance[each], float(ridge[each[0]].item())
                    )
                    found[columns] += change
                    rows = rows[(rows != each[0]).all(1)]
        if not len(rows):
            continue
        blocks = GramBlocks.of(entries, rows, shape[0])
        columns, bound = blocks.unit_vectors(tolerance)
        determined[columns], error[columns] = True, bound
        multipliers[rows.flatten()] = blocks.with_ridge(ridge[rows[:, 0]]).solve(rest[rows.flatten()])
    return LinearPosterior(found + SparseMatrix.from_entries(*entries, shape).T @ multipliers, determined, error)


def _complete(equations: NeighborEquations) -> Entries:
    """Return the coefficients of the complete equations, ascending by unknown."""
    unclear = equations.hidden != 0
    unclear[equations.rows[equations.coefficients.isnan()]] = True
    term = (~unclear[equations.rows]).nonzero().squeeze(1)
    term = term[equations.columns[term].argsort(stable=True)]
    return Entries(equations.rows[term], equations.columns[term], equations.coefficients[term])


def _labels(shape: tuple[int, int], entries: Entries) -> Tensor:
    """Return component numbers of equations and unknowns [rows + unknowns]."""
    return components(torch.stack([entries.rows, entries.columns + shape[0]]), sum(shape))


def _components(rows: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yield ``rows`` [n], ascending, by component, those of equally many together [b, h]."""
    rows = rows[labels[rows].argsort(stable=True)]
    _, sizes = torch.unique_consecutive(labels[rows], return_counts=True)
    start = sizes.cumsum(0) - sizes
    for height in torch.unique(sizes).tolist():
        yield rows[start[sizes == height][:, None] + torch.arange(height, device=rows.device)]


def _noise_to_prior(std: Tensor, variance: Tensor, entries: Entries, labels: Tensor) -> Tensor:
    """Return of every equation the square of its component's mean noise over the prior variance there [R]."""
    noise, spread = torch.zeros(2, len(labels), dtype=torch.double, device=std.device)
    rows, columns = torch.unique(entries.rows), torch.unique(entries.columns)
    _add_means(noise, labels[rows], std[rows])
    _add_means(spread, labels[len(std) + columns], variance[columns].mean(1))
    by_component: Tensor = noise.square() / spread.clamp(min=1e-300)
    return by_component[labels[: len(std)]]


def _add_means(total: Tensor, labels: Tensor, values: Tensor) -> None:
    """Add to ``total`` the mean of the ``values`` [n] of every label."""
    total.index_add_(0, labels, values / torch.bincount(labels, minlength=len(total))[labels])
