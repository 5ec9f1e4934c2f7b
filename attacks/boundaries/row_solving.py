"""Rows from linear measurements of weighted sums of a few of them, with directions of very different lengths.

Binary rows are found by generalised approximate message passing (Rangan 2011) with an own variance for every entry:
weights that trained on words move along frequent ones, so that measurements of these are many and of others few, and
:mod:`fglaudit.adversary.message_passing`, which has one variance for all, stops at a third of the rows. A row counts
as solved if it repeats every measurement to rounding and these hold more bits than the prior leaves open. Real-valued
rows follow by least squares, and are solved where the directions span all features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import FeaturePrior
from fglaudit.attacks.boundaries.state_equations import Systems

_DIRECTIONS = 256
"""The best measured ones that message passing uses."""
_SCHEDULE = ((1.0, 25), (0.6, 40), (0.3, 80))
"""Damping and sweeps of one try after the other."""
_REPEATED = 6.0
"""Standard deviations of rounding within which a solved row repeats its measurements."""
_MARGIN_BITS, _PROOF_BITS = 20, 40
"""By which measurements hold more than the prior leaves open, and more than any row could, where a row is proven."""
_APART = 0.1
"""Standard error of an entry at which a one and a zero are told apart without doubt."""
_LEAST = 1e-9
_EXACT = 1e-4
"""Standard error of an entry, relative to a typical one, at which a real-valued row is solved."""
_NUMBERS = 2**26
"""Of the matrices of the systems that are solved at once."""


@dataclass(frozen=True)
class Solved:
    """Rows of P systems of q rows each.

    Attributes:
        rows: [P, q, F].
        sure: which systems repeat their measurements, and have more of them than the prior leaves open [P].
        proven: which would without a prior [P].
    """

    rows: Tensor
    sure: Tensor
    proven: Tensor


@dataclass(frozen=True)
class _Measured:
    """P systems in orthonormal directions, the best measured first: matrix [P, K, F], values and variances [P, K]."""

    matrix: Tensor
    values: Tensor
    variance: Tensor


def solve_rows(found: Systems, directions: Tensor, prior: FeaturePrior, *, real: bool, device: torch.device) -> Solved:
    """Solve all systems, block by block.

    Args:
        directions: [F, E].
        prior: of the rows of ``found.terms``, flattened [P q, F].
        real: whether features are real-valued; otherwise they are 0 or 1.
    """
    (count, terms), features = found.terms.shape, directions.shape[0]
    left, size, right = torch.linalg.svd(directions.to(device), full_matrices=False)
    kept = size > _LEAST * size.max().clamp(min=1e-30)
    basis, inside = left[:, kept], size[kept].unsqueeze(1) * right[kept]
    limit = len(inside) if real else min(_DIRECTIONS, len(inside))
    step = max(1, _NUMBERS // (max(1, limit) * features * terms))
    mean, spread = (part.view(count, terms, features).to(device) for part in (prior.mean, prior.variance))
    blocks = []
    for block in torch.split(torch.arange(count), step):
        values, precision, factors = (part[block].to(device) for part in (found.values, found.precision, found.factors))
        measured = _measured(basis, inside, values, precision, limit)
        solve = _real_rows if real else _binary_rows
        rows, bits, need = solve(measured, factors, mean[block], spread[block])
        seen = torch.einsum("pq,pqf->pf", factors, rows) @ directions.to(device)
        repeated = (((seen - values).abs() * precision.sqrt()) <= _REPEATED).all(1)
        proof = bits > (0 if real else features * terms) + _PROOF_BITS
        blocks.append((rows.cpu(), (repeated & (bits > need)).cpu(), (repeated & proof & (bits > need)).cpu()))
    if not blocks:
        none = torch.zeros(0, dtype=torch.bool)
        return Solved(torch.zeros(0, terms, features, dtype=torch.double), none, none)
    return Solved(*(torch.cat(part) for part in zip(*blocks, strict=True)))


def _measured(basis: Tensor, inside: Tensor, values: Tensor, precision: Tensor, limit: int) -> _Measured:
    """Return the systems of ``values`` and ``precision`` [P, E] in the eigenvectors of their normal equations.

    Args:
        basis: orthonormal [F, R].
        inside: the directions in it [R, E].
        limit: how many eigenvectors are kept.
    """
    normal = torch.einsum("re,pe,se->prs", inside, precision, inside)
    size, vectors = torch.linalg.eigh(normal)
    size, vectors = size.flip(1)[:, :limit].clamp(min=1e-6), vectors.flip(2)[:, :, :limit]
    pushed = (precision * values) @ inside.T
    found = torch.einsum("prk,pr->pk", vectors, pushed) / size
    return _Measured((basis @ vectors).mT, found, 1 / size)


def _binary_rows(measured: _Measured, factors: Tensor, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return binary rows [P, q, F], how many bits the measurements hold, and how many the prior leaves open [P].

    Args:
        factors: of the rows in their sum [P, q].
        mean: prior chances of ones [P, q, F]; ``spread`` is their variance.
    """
    matrix = (factors[:, None, :, None] * measured.matrix[:, :, None]).flatten(2).float()
    values, variance = measured.values.float(), measured.variance.float().clamp(min=_LEAST)
    chance = mean.flatten(1).clamp(1e-6, 1 - 1e-6)
    rows = torch.zeros_like(chance)
    rest = torch.arange(len(rows), device=rows.device)
    for damping, sweeps in _SCHEDULE:
        odds = chance[rest].logit().float()
        found = (_message_passing(matrix[rest], values[rest], variance[rest], odds, damping, sweeps) > 0.5).double()
        rows[rest] = found
        error = (matrix[rest].double() @ found[..., None])[..., 0] - measured.values[rest]
        rest = rest[(error.square() / (measured.variance[rest] + 1e-8)).mean(1) > 1]
        if not len(rest):
            break
    told = (matrix.double().square() * (chance * (1 - chance))[:, None]).sum(2) / measured.variance
    bits = (told.clamp(min=1).log2() / 2).sum(1)
    if factors.shape[1] == 1 and measured.matrix.shape[1] == mean.shape[2]:  # as many equations as unknowns
        bits[measured.variance.amax(1).sqrt() <= _APART * factors[:, 0]] = math.inf
    need = -(chance * chance.log2() + (1 - chance) * (1 - chance).log2()).sum(1)
    return rows.view(mean.shape), bits, need + _MARGIN_BITS


def _message_passing(
    matrix: Tensor, values: Tensor, variance: Tensor, odds: Tensor, damping: float, sweeps: int
) -> Tensor:
    """Return posterior chances of ones [P, Q].

    Args:
        matrix: [P, K, Q].
        values, variance: [P, K].
        odds: prior log odds [P, Q].
    """
    squares, chance, message = matrix.square(), odds.sigmoid(), torch.zeros_like(values)
    for sweep in range(sweeps):
        share = damping if sweep else 1.0
        unknown = (squares @ (chance * (1 - chance))[..., None])[..., 0].clamp(min=_LEAST)
        residual = values - (matrix @ chance[..., None])[..., 0] + message * unknown
        message = share * residual / (unknown + variance) + (1 - share) * message
        width = 1 / (squares.mT @ (1 / (unknown + variance))[..., None])[..., 0].clamp(min=_LEAST)
        estimate = chance + width * (matrix.mT @ message[..., None])[..., 0]
        chance = share * ((estimate - 0.5) / width.clamp(min=1e-6) + odds).sigmoid() + (1 - share) * chance
    return chance


def _real_rows(measured: _Measured, factors: Tensor, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return as :func:`_binary_rows` real-valued rows: the posterior mean of one row; infinitely many bits where the
    directions span all features, else none."""
    if factors.shape[1] > 1 or not measured.matrix.shape[1]:  # what is known of a sum is nothing of its terms
        none = torch.zeros(len(mean), dtype=torch.double, device=mean.device)
        return mean.clone(), none, none + 1
    matrix = factors[:, :, None] * measured.matrix
    broad = spread[:, 0, None] * matrix
    inner = broad @ matrix.mT
    inner.diagonal(dim1=1, dim2=2).add_(measured.variance)
    error = measured.values - (matrix @ mean[:, 0, :, None])[..., 0]
    rows = mean[:, 0] + (broad.mT @ torch.linalg.solve(inner, error[..., None]))[..., 0]
    typical = rows.square().mean(1).sqrt()
    exact = (measured.variance.amax(1).sqrt() <= _EXACT * typical * factors[:, 0]) & (
        measured.matrix.shape[1] == mean.shape[2]
    )
    return rows.unsqueeze(1), torch.where(exact, math.inf, 0.0).double(), torch.ones_like(typical)
