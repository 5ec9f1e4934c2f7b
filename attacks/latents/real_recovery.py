"""Real-valued rows from few random measurements: message passing with a sparse prior, or a linear estimate.

Sparse rows (tf-idf) have a Bernoulli-Gaussian prior per feature, fitted to the observer's rows; where message passing
leaves no more non-zero entries than there are measurements, least squares on them gives the exact values. Dense rows
get the linear estimate of least mean square error under the observer's mean and (shrunk) covariance. Which of the two
is better is tried on the observer's own rows, whose measurements it can compute. Without such rows matching pursuit
finds sparse ones, and others get the linear estimate around the entry that the mean measurement shows all rows to have
in common.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.message_passing import Measurements, bernoulli_gaussian, message_passing
from fglaudit.adversary.priors.feature_prior import FeaturePrior
from fglaudit.attacks.latents.matching_pursuit import matching_pursuit

_EXACT = 2e-4
"""Largest relative residual of a row that counts as solved."""
_CLEAR = 4.0
"""Squared deviations from zero at which a common entry of unknown rows begins to count."""
_SHRINK_ROWS = 4.0
_TRIAL_ROWS = 200
_ROWS_AT_ONCE = 256


def recover_real(
    measured: Measurements, values: Tensor, std: float, prior: FeaturePrior, known: Tensor, drop: float, *, sweeps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [U, F], confidences [U] and proofs [U].

    Args:
        measured: matrix [M, F].
        values: [U, M].
        std: standard deviation of the noise on the values.
        prior: of the U rows.
        known: rows of the observer's own [A, F].
        drop: share of the entries that a user dropped before measuring.
    """
    mean = prior.mean.to(values)
    unproven = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    if len(known) < 2:
        if not prior.informed:
            mean, gain = _common_entry(measured, values, std, drop)
        else:
            gain = prior.variance.to(values).mean()
        matrix = measured.matrix
        square = gain * matrix @ matrix.mT
        square.diagonal().add_(std**2 + 1e-6 * square.diagonal().mean())
        rows = mean + gain * torch.linalg.solve(square, (values - measured.forward(mean * (1 - drop))).mT).mT @ matrix
        if std > 0 or drop > 0:
            return rows, torch.zeros_like(values[:, 0]), unproven
        sparse, solved = matching_pursuit(matrix, values)
        return torch.where(solved[:, None], sparse, rows), torch.where(solved, 1.0, 0.0).to(values), unproven
    trial = known[:_TRIAL_ROWS]
    trial_mean = known.mean(0).expand(len(trial), -1)
    trial_values = measured.forward(trial * (1 - drop))  # what a kept share of the row gives on average
    sparse, solved = _sparse(measured, trial_values, std, known, drop, sweeps)
    linear = _linear(measured, trial_values, std, known, trial_mean, drop)
    error = [(guess - trial).square().sum() for guess in (sparse, linear)]
    if error[1] < error[0]:
        rows = _linear(measured, values, std, known, mean, drop)
        return rows, torch.zeros_like(values[:, 0]), unproven
    rows, solved = _sparse(measured, values, std, known, drop, sweeps)
    return rows, torch.where(solved, 1.0, 0.5).to(values), unproven


def _common_entry(measured: Measurements, values: Tensor, std: float, drop: float) -> tuple[Tensor, Tensor]:
    """Return the mean [F] of the entries of U unknown rows and their variance, as the mean measurement shows them.

    A row of which every entry is c is measured as c times the sum of the matrix's columns. The mean row of U users has
    such a part, of which the U measurements' scatter, and the mean row's own around c, leave the error.

    Args:
        measured, std, drop: as in :func:`recover_real`.
        values: [U, M].
    """
    ones = measured.forward(torch.ones_like(measured.matrix[0]) * (1 - drop))
    average = values.mean(0)
    entry = average @ ones / ones.square().sum().clamp(min=1e-30)
    left = (average - entry * ones).square().mean()
    error = left / ones.square().sum().clamp(min=1e-30)
    entry = entry * (1 - _CLEAR * error / entry.square().clamp(min=1e-30)).clamp(min=0)
    power = measured.matrix.square().sum(1).mean() * (1 - drop)
    spread = ((values - entry * ones).square().mean() - std**2) / power
    return entry.expand(measured.matrix.shape[1]), spread.clamp(min=1e-12 * values.square().mean().clamp(min=1e-30))


def _sparse(
    measured: Measurements, values: Tensor, std: float, known: Tensor, drop: float, sweeps: int
) -> tuple[Tensor, Tensor]:
    """Return posterior rows [U, F], and which of them repeat their measurements with few non-zero entries [U].

    Args:
        measured: matrix [M, F].
        values: [U, M].
        std, drop: as in :func:`recover_real`.
        known: rows of the observer's own [A, F].
    """
    rows, features = len(known), known.shape[1]
    nonzero = known != 0
    overall = nonzero.float().mean()
    density = ((nonzero.sum(0) + overall) / (rows + 1)).clamp(1e-6, 1 - 1e-6)
    pooled = known[nonzero].mean() if bool(nonzero.any()) else known.new_ones(())
    pooled_square = (known[nonzero] - pooled).square().mean() if bool(nonzero.any()) else known.new_ones(())
    number = nonzero.sum(0)
    center = (known.sum(0) + _SHRINK_ROWS * pooled) / (number + _SHRINK_ROWS)
    deviation = torch.where(nonzero, (known - center).square(), 0.0).sum(0)
    spread = (deviation + _SHRINK_ROWS * pooled_square.clamp(min=1e-12)) / (number + _SHRINK_ROWS)
    kept = density * (1 - drop)
    # Values of order one keep the floor of the variances meaningful.
    unit = pooled.abs().clamp(min=1e-12)
    center, spread = center / unit, spread / unit**2
    odds = kept.logit().expand(len(values), features)
    start_mean = (kept * center).expand_as(odds)
    start = (start_mean, (kept * (spread + center.square())).expand_as(odds) - start_mean.square())
    estimator = bernoulli_gaussian(odds, center, spread)
    found = message_passing(measured, values / unit, (std / float(unit)) ** 2, start, estimator, sweeps=sweeps)
    mean = found.mean * unit
    solved = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    if std == 0:
        solved, mean = _least_squares(measured, values, mean)
    # A dropped entry keeps its prior; of those kept the value is known.
    absent = (mean.abs() < 1e-3 * unit) if drop else torch.zeros_like(mean, dtype=torch.bool)
    return torch.where(absent, density * drop * center * unit, mean), solved & (drop == 0)


def _least_squares(measured: Measurements, values: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Solve each row for its largest M / 2 entries; keep solutions that repeat the measurements."""
    count = measured.matrix.shape[0]
    size = max(1, min(count // 2, mean.shape[1]))
    out, solved = mean.clone(), torch.zeros(len(mean), dtype=torch.bool, device=mean.device)
    for low in range(0, len(mean), _ROWS_AT_ONCE):
        block = torch.arange(low, min(low + _ROWS_AT_ONCE, len(mean)), device=mean.device)
        place = mean[block].abs().topk(size, dim=1).indices
        columns = measured.matrix.T[place].mT.double()  # [u, M, size]
        value = torch.linalg.lstsq(columns, values[block].double()[..., None]).solution
        left = (columns @ value)[..., 0] - values[block]
        good = left.norm(dim=1) <= _EXACT * values[block].norm(dim=1).clamp(min=1e-12)
        exact = torch.zeros_like(mean[block]).scatter_(1, place, value[..., 0].to(mean))
        exact = torch.where(exact.abs() > _EXACT * exact.abs().amax(1, keepdim=True), exact, 0.0)
        out[block[good]] = exact[good]
        solved[block] = good
    return solved, out


def _linear(measured: Measurements, values: Tensor, std: float, known: Tensor, mean: Tensor, drop: float) -> Tensor:
    """Return the linear estimate of least mean square error [U, F].

    Args:
        measured: matrix [M, F].
        values: [U, M].
        std, drop: as in :func:`recover_real`.
        known: rows of the observer's own [A, F].
        mean: prior means [U, F].
    """
    centered = (known - known.mean(0)).double()
    covariance = centered.mT @ centered / len(known)
    share = min(1.0, known.shape[1] / (10.0 * len(known)))  # of the average variance: few rows make a poor covariance
    covariance = (1 - share) * covariance
    covariance.diagonal().add_(share * centered.square().mean() + 1e-12)
    matrix = measured.matrix.double() * (1 - drop)
    cross = covariance @ matrix.mT
    square = matrix @ cross
    lost = drop * (1 - drop) * measured.energy * float(known.square().sum(1).mean().item())
    square.diagonal().add_(std**2 + lost + 1e-7 * square.diagonal().mean())
    rest = values.double() - mean.double() @ matrix.mT
    estimate = mean.double() + torch.linalg.solve(square, rest.mT).mT @ cross.mT
    out: Tensor = estimate.to(values)
    return out
