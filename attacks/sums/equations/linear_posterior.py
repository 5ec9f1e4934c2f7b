"""Linear algebra of the equations: the unknown rows that they determine, and the best linear estimate of the rest.

Row j is determined whatever the other rows are if and only if the unit vector e_j lies in the row space of the
coefficient matrix B. With B = U diag(s) V' of one connected component, that is the case where the j-th row of V
(non-zero s only) has norm one. The estimate is the posterior mean of a Gaussian prior: ``mean + V diag(s v / (s^2 v +
noise^2)) U' (values - B mean)``; without noise it is the least change to the prior mean that satisfies all equations,
and exact for determined rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations, neighbor_equations
from fglaudit.view import View

_RANK_TOLERANCE = 1e-10
_EXACT = 5e-4
"""Rounding error of a proven row, relative to its largest entry; half of what the scorer allows."""
_INSIDE = 1e-8
"""A unit vector counts as inside the row space when the square of its distance to it is below this."""


@dataclass(frozen=True)
class LinearPosterior:
    """Posterior of U unknown rows.

    Attributes:
        mean: the estimate [U, F].
        determined: which rows the equations determine [U].
        error: bound on the rounding error of determined rows [U].
    """

    mean: Tensor
    determined: Tensor
    error: Tensor

    def certain(self, level: float = 0.0) -> Tensor:
        """Return which rows are determined in figures too [U]: rounding moves no entry by more than ``_EXACT`` of the
        row's largest, or of ``level`` where that is larger; of a row that is zero but for rounding, of what the other
        rows' largest usually are."""
        top = self.mean.abs().amax(1)
        other = self.determined & (top > self.error)
        usual = top[other].median() if bool(other.any()) else torch.zeros_like(top).sum()
        size = torch.where(top > self.error, top, usual).clamp(min=max(level, 1e-12))
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
        variance: prior variance [U, F]; one value per node is used, its mean over features.
    """
    unknowns, device = equations.num_unknowns, equations.values.device
    bad = torch.zeros(equations.num_rows, device=device).index_add_(
        0, equations.rows, equations.coefficients.isnan().float()
    )
    usable = (equations.hidden == 0) & (bad == 0)
    term = usable[equations.rows].nonzero().squeeze(1)
    rows, columns, weight = equations.rows[term], equations.columns[term], equations.coefficients[term]
    labels = _labels(equations.num_rows, unknowns, rows, columns)
    present = torch.unique(rows)
    row_order = present[labels[present].argsort(stable=True)]
    met = torch.zeros(unknowns, dtype=torch.bool, device=device)
    met[columns] = True
    column_order = met.nonzero().squeeze(1)
    column_order = column_order[labels[equations.num_rows + column_order].argsort(stable=True)]
    _, row_count = torch.unique_consecutive(labels[row_order], return_counts=True)
    _, column_count = torch.unique_consecutive(labels[equations.num_rows + column_order], return_counts=True)

    out = mean.clone()
    determined = torch.zeros(unknowns, dtype=torch.bool, device=device)
    error = torch.full((unknowns,), torch.inf, dtype=torch.double, device=device)
    # Rank of a component among those of its shape, and position in it.
    place = torch.full((2, equations.num_rows + unknowns), -1, device=device)
    row_start, column_start = row_count.cumsum(0) - row_count, column_count.cumsum(0) - column_count
    noise = equations.std + 1e-12
    for height, width in torch.unique(torch.stack([row_count, column_count], 1), dim=0).tolist():
        same = ((row_count == height) & (column_count == width)).nonzero().squeeze(1)
        at_row = row_order[row_start[same][:, None] + torch.arange(height, device=device)]
        at_column = column_order[column_start[same][:, None] + torch.arange(width, device=device)]
        place.fill_(-1)
        block = torch.arange(len(same), device=device)[:, None]
        place[0, at_row], place[1, at_row] = (
            block.expand_as(at_row),
            torch.arange(height, device=device).expand_as(at_row),
        )
        place[1, equations.num_rows + at_column] = torch.arange(width, device=device).expand_as(at_column)
        inside = place[0, rows] >= 0
        matrix = torch.zeros(len(same), height, width, dtype=torch.double, device=device)
        matrix[place[0, rows[inside]], place[1, rows[inside]], place[1, equations.num_rows + columns[inside]]] = weight[
            inside
        ]
        left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
        keep = singular > _RANK_TOLERANCE * singular[:, :1]
        projection = ((right**2) * keep[:, :, None]).sum(1)
        spread = variance[at_column].mean((1, 2))[:, None]
        level = noise[at_row].mean(1, keepdim=True)
        gain = torch.where(keep, singular * spread / (singular**2 * spread + level**2), 0.0)
        solve = (right.mT * gain[:, None, :]) @ left.mT  # [blocks, width, height]
        rest = equations.values[at_row] - matrix @ mean[at_column]
        out[at_column] += solve @ rest
        determined[at_column] = projection > 1 - _INSIDE
        error[at_column] = (solve.abs() @ equations.tolerance[at_row]).amax(2)
    return LinearPosterior(out, determined, error)


def _labels(rows: int, unknowns: int, row: Tensor, column: Tensor) -> Tensor:
    """Return component numbers of equations and unknowns [rows + unknowns]."""
    size = rows + unknowns
    links = coo_array(
        (torch.ones(len(row)).numpy(), (row.cpu().numpy(), (column + rows).cpu().numpy())), shape=(size, size)
    )
    return torch.from_numpy(connected_components(links, directed=False)[1]).long().to(row.device)
