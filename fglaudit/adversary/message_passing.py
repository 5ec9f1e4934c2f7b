"""Bayes-optimal approximate message passing: sparse rows from a few random linear measurements of each.

Row u is measured as ``y_u = A_u x_u + noise``, with far fewer measurements M than features F, entries of ``A_u``
without a common mean and of one size, and independent priors on the entries of ``x_u``. One sweep of generalised
approximate message passing (Rangan, 2011; Donoho, Maleki and Montanari, 2009, for the case without noise) costs two
products with ``A``: each entry sees the row through a Gaussian channel ``r = x + N(0, tau)``, and the posterior mean
under its own prior is the next estimate. All rows are one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Estimator = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From ``r`` [U, F] and ``tau`` [U, 1] to posterior means and variances [U, F]."""

_LEAST_VARIANCE = 1e-7
"""Below this, float32 products are no longer exact enough to pass on; relative to one measurement of one unit entry."""
_NEW = 0.7
"""Share of the new estimate in every sweep; the rest, the old one, damps."""


class LinearMaps(Protocol):
    """The linear maps of U rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``A x`` [U, M] of rows [U, F]."""
        ...

    def backward(self, s: Tensor) -> Tensor:
        """Return ``A' s`` [U, F] of residuals [U, M]."""
        ...

    @property
    def energy(self) -> float:
        """Mean square of an entry."""
        ...


@dataclass(frozen=True)
class Measurements:
    """The linear maps of U rows: one matrix for all, or one per row.

    Attributes:
        matrix: [M, F] or [U, M, F].
    """

    matrix: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return ``A x`` [U, M] of rows [U, F]."""
        return x @ self.matrix.mT if self.matrix.dim() == 2 else (self.matrix @ x[..., None])[..., 0]

    def backward(self, s: Tensor) -> Tensor:
        """Return ``A' s`` [U, F] of residuals [U, M]."""
        return s @ self.matrix if self.matrix.dim() == 2 else (s[:, None] @ self.matrix)[:, 0]

    @property
    def energy(self) -> float:
        """Mean square of an entry."""
        return float(self.matrix.square().mean().item())


@dataclass(frozen=True)
class Posterior:
    """Outcome of message passing.

    Attributes:
        mean: posterior means [U, F].
        r, tau: the Gaussian channel of each entry in the last sweep [U, F], [U, 1].
    """

    mean: Tensor
    r: Tensor
    tau: Tensor


def message_passing(
    measurements: LinearMaps,
    values: Tensor,
    variance: Tensor | float,
    start: tuple[Tensor, Tensor],
    estimator: Estimator,
    *,
    sweeps: int,
) -> Posterior:
    """Run ``sweeps`` sweeps.

    Args:
        values: y [U, M].
        variance: of the noise on ``values``: [U, M], [M] or a number.
        start: prior means and variances [U, F].
    """
    energy = measurements.energy
    mean, spread = start
    noise = torch.as_tensor(variance, dtype=values.dtype, device=values.device).clamp(min=_LEAST_VARIANCE * energy)
    residual = values - measurements.forward(mean)
    uncertainty = energy * spread.sum(1, keepdim=True)
    r, tau = mean, uncertainty
    for _ in range(sweeps):
        weight = (uncertainty + noise).reciprocal().expand_as(values)
        # The residuals show the uncertainty better than the posterior variances do where the prior is off.
        seen = (weight.square() * (residual.square() - noise)).sum(1, keepdim=True) / weight.square().sum(
            1, keepdim=True
        )
        uncertainty = seen.clamp(min=_LEAST_VARIANCE * energy)
        weight = (uncertainty + noise).reciprocal().expand_as(values)
        tau = 1 / (energy * weight.sum(1, keepdim=True))
        r = mean + tau * measurements.backward(weight * residual)
        new, spread = estimator(r, tau)
        onsager = energy * spread.sum(1, keepdim=True) * weight * residual
        mean = _NEW * new + (1 - _NEW) * mean
        residual = _NEW * (values - measurements.forward(new) + onsager) + (1 - _NEW) * residual
    return Posterior(estimator(r, tau)[0], r, tau)


def bernoulli(log_odds: Tensor, count: Tensor | None = None) -> Estimator:
    """Entries are 1 with prior ``log_odds`` [U, F], else 0.

    Args:
        count: number of ones of each row [U], NaN where it is not known; all log odds are then shifted until it is the
            expected number.
    """

    def estimate(r: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        posterior = (r - 0.5) / tau + log_odds
        if count is not None:
            shift = count_shift(posterior, count.nan_to_num(1.0))
            posterior = posterior + torch.where(count[:, None].isnan(), 0.0, shift)
        mean = posterior.sigmoid()
        return mean, mean * (1 - mean)

    return estimate


def count_shift(log_odds: Tensor, count: Tensor, steps: int = 16) -> Tensor:
    """Return the shift [U, 1] under which the probabilities of ``log_odds`` [U, F] sum to ``count`` [U]: bisection,
    then Newton's method while it stays inside."""
    low = torch.full_like(log_odds[:, :1], -30.0)
    high = -low
    shift = torch.zeros_like(low)
    for _ in range(steps):
        p = (log_odds + shift).sigmoid()
        excess = p.sum(1, keepdim=True) - count[:, None]
        low, high = torch.where(excess < 0, shift, low), torch.where(excess < 0, high, shift)
        newton = shift - excess / (p * (1 - p)).sum(1, keepdim=True).clamp(min=1e-6)
        shift = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
    return shift


def bernoulli_gaussian(log_odds: Tensor, center: Tensor, spread: Tensor) -> Estimator:
    """Entries are 0, or with prior ``log_odds`` Gaussian with mean ``center`` and variance ``spread``.

    All three are [U, F] or [F].
    """

    def estimate(r: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        total = spread + tau
        evidence = 0.5 * ((tau / total).log() + r.square() / tau - (r - center).square() / total)
        chance = (log_odds + evidence).sigmoid()
        gain = spread / total
        value = center + gain * (r - center)
        mean = chance * value
        return mean, chance * (gain * tau + value.square()) - mean.square()

    return estimate
