"""Which few rows of a dictionary measured vectors are made of: sparse Bayesian learning over many measurements.

Given ``M = Z' R + errors``, Z [N, D] known, R [N, L] with few rows that are not 0: which are they, and what are they?
Row n of R is given a Gaussian prior of power ``gamma_n``; the powers that make M likeliest are found by fixed-point
steps, and most become 0 (M-SBL: Wipf and Rao, IEEE TSP 2007; steps of MacKay, Neural Computation 1992). Unlike greedy
pursuit this copes with rows of Z that are much alike, as those of neighbours are after many steps of propagation. The
errors are taken to be large at first and brought down to what they are, so that the search is not caught early.

Where M has the rank of R, its column space decides alone: rows of Z outside of it do not belong (MUSIC: Schmidt, IEEE
TAP 1986), and the search is among the others. Rows of Z that are equal, as those of twins in a graph are, share what
either has.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.adversary.running.once_per_input import once_per_input

_STEPS = 70
_FIRST_ERROR, _SHRINKS = 3e-3, 0.85
"""Errors, beside the largest singular value, and by what they are made smaller in every step."""
_SMALLEST_ERROR = 1e-7
"""Smaller ones leave a matrix that cannot be factorised in double precision."""
_LEFT_BY_STEP = {6: 1600, 12: 800, 20: 400}
"""How many candidates with the largest power are kept from a step on."""
_MOST = 2**14
"""Candidates at most: those nearest to the column space."""
_SEEN = 1.5
"""A direction counts if its singular value is this many times the largest of errors alone."""
_INSIDE = 1e-2
"""Distance of a row of length 1 from the column space up to which it may belong to it."""


class SparseRows(NamedTuple):
    """The rows of R that may not be 0.

    Attributes:
        nodes: which they are [m].
        power: mean square of each, for rows of Z at length 1 and the largest singular value of M at 1 [m].
        rows: [m, L].
    """

    nodes: Tensor
    power: Tensor
    rows: Tensor


@once_per_input
def sparse_rows(known: Tensor, measured: Tensor, error: float) -> SparseRows:
    """Return the few rows R of which ``measured = known' R``, none where all is error.

    Args:
        known: Z [N, D], in double precision.
        measured: M [D, L].
        error: standard deviation of M's entries' errors.
    """
    space, values, right = torch.linalg.svd(measured, full_matrices=False)
    floor = error * (measured.shape[0] ** 0.5 + measured.shape[1] ** 0.5)
    rank = int((values > _SEEN * floor).sum())
    if rank == 0:
        none = known.new_zeros(0)
        return SparseRows(
            torch.empty(0, dtype=torch.long, device=known.device), none, known.new_zeros(0, len(right[0]))
        )
    length: Tensor = torch.linalg.vector_norm(known, dim=1)
    scaled = measured.new_tensor(values[0].item())
    target = space[:, :rank] * (values[:rank] / scaled)
    index = _candidates(known, length, space[:, :rank])
    unit = known[index] / length[index].unsqueeze(1)
    kept, power, mean = _likeliest(unit, target, max(error / float(scaled.item()), _SMALLEST_ERROR))
    index = index[kept]
    return SparseRows(index, power, scaled * (mean @ right[:rank]) / length[index].unsqueeze(1))


def _candidates(known: Tensor, length: Tensor, space: Tensor) -> Tensor:
    """Return the rows of ``known`` that may belong: those in the column space if they are enough to span it."""
    inside = (known @ space).square().sum(1) / length.square().clamp(min=1e-30)
    away = (1 - inside).clamp(min=0).sqrt()
    away[length <= 1e-12] = 2.0
    near = (away < _INSIDE).nonzero().squeeze(1)
    if len(near) >= space.shape[1]:
        return near
    order = away.argsort(stable=True)[:_MOST]
    return order[away[order] <= 1]


def _likeliest(unit: Tensor, target: Tensor, error: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of ``unit`` [n, D] that are left [m], their powers [m], and the means of R [m, r] for ``target``
    [D, r]."""
    kept = torch.arange(len(unit), device=unit.device)
    power = torch.full_like(unit[:, 0], float(target.square().sum().item()) / len(unit))
    mean = target.new_zeros(len(unit), target.shape[1])
    columns, wanted = _in_their_span(unit, target)
    for step in range(_STEPS):
        most = _LEFT_BY_STEP.get(step, len(kept))
        if most < len(kept):
            left = power.argsort(descending=True)[:most]
            kept, power, mean = kept[left], power[left], mean[left]
            columns, wanted = _in_their_span(unit[kept], target)
        noise = max(_FIRST_ERROR * _SHRINKS**step, error) ** 2
        covariance = (columns * power) @ columns.T
        covariance.diagonal().add_(noise)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed):
            break
        mean = power.unsqueeze(1) * (columns.T @ torch.cholesky_solve(wanted, factor))
        # 1 less the share of the prior's variance that is left after the measurement.
        decided = power * torch.linalg.solve_triangular(factor, columns, upper=False).square().sum(0)
        power = (mean.square().mean(1) / decided.clamp(min=1e-12)).clamp(min=1e-30)
    return kept, power, mean


def _in_their_span(unit: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of ``unit`` [n, D] as columns, and ``target`` [D, r], in coordinates of the span of these rows
    where that is smaller than D; what of the target is outside of it no row can explain."""
    if len(unit) >= unit.shape[1]:
        return unit.T.contiguous(), target
    basis, columns = torch.linalg.qr(unit.T)
    return columns, basis.T @ target
