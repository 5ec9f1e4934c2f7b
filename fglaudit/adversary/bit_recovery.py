"""Binary rows from few random measurements of each, and the check that proves a recovered row.

Message passing (:mod:`fglaudit.adversary.message_passing`) either finds a row or stops at a diffuse posterior. A binary
row that repeats all M measurements to float32 rounding is the right one, whatever the prior: with b bits per
measurement (spread of a measurement over its rounding error) the expected number of other binary rows of F entries that
fit as well is at most ``2^(F - M b)``. Rows that do not fit are tried again from perturbed priors. A row with a single
one is a column of the matrix and is looked up: message passing is an approximation for many measurements, and with a
handful it misses even these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.message_passing import LinearMaps, Measurements, bernoulli, message_passing
from fglaudit.shapes import NodeMask

PERTURBATION = 0.3
"""Standard deviation of the noise on the log odds when message passing is restarted."""
_ROUNDING = 2.0**-21
"""Largest rounding error of a float32 sum of a few dozen terms, relative to the sum of their absolute values."""
MARGIN_BITS = 40
"""A row is called determined when the expected number of other fitting rows is below 2^-40."""


@dataclass(frozen=True)
class Bits:
    """Recovered binary rows.

    Attributes:
        chance: posterior probability of a one [U, F]; of rows that fit, the row itself.
        fits: which rows repeat their measurements to rounding [U].
    """

    chance: Tensor
    fits: NodeMask


def fitting(measurements: Measurements, values: Tensor, bits: Tensor) -> Tensor:
    """Return which rows ``bits`` [U, F] repeat ``values`` [U, M] to float32 rounding [U]."""
    size = Measurements(measurements.matrix.abs()).forward(bits.abs())
    return ((measurements.forward(bits) - values).abs() <= _ROUNDING * size).all(1) & (bits != 0).any(1)


def determined(measurements: Measurements) -> bool:
    """Whether a binary row that fits is certain to be the only one (see module docstring)."""
    count, features = measurements.matrix.shape[-2:]
    if measurements.matrix.numel() < 2:
        return False
    size = measurements.matrix.abs().mean()
    bits_each = float((measurements.matrix.std() / (_ROUNDING * size)).log2().item())
    return count * bits_each > features + MARGIN_BITS


def nearest_column(measurements: LinearMaps, squares: Tensor, values: Tensor) -> Tensor:
    """Return the rows [U, F] with a single one whose measurements are nearest to ``values`` [U, M].

    Args:
        squares: squared norms of the columns, [F] or one set per row [U, F].
    """
    nearest = (measurements.backward(values) - squares / 2).argmax(1, keepdim=True)
    return values.new_zeros(len(values), squares.shape[-1]).scatter_(1, nearest, 1.0)


def attempts(
    fits: Tensor, log_odds: Tensor, restarts: int, rng: torch.Generator
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield attempt, rows [R] that do not fit yet, and their prior log odds [R, F], perturbed from attempt 1 on.

    Args:
        fits: which rows fit [U]; the caller updates it in place.
        log_odds: [U, F].
    """
    for attempt in range(1 + restarts):
        rest = (~fits).nonzero().squeeze(1)
        if len(rest) == 0:
            return
        odds = log_odds[rest]
        if attempt:
            odds = odds + PERTURBATION * torch.randn(odds.shape, generator=rng).to(odds)
        yield attempt, rest, odds


def recover_bits(
    measurements: Measurements,
    values: Tensor,
    variance: Tensor | float,
    log_odds: Tensor,
    *,
    sweeps: int,
    restarts: int,
    rng: torch.Generator,
) -> Bits:
    """Recover binary rows; without noise, rows that do not fit are tried again.

    Args:
        measurements: one matrix [M, F] for all rows, or one per row [U, M, F].
        values: [U, M].
        variance: of the noise on ``values``: [U, M], [M] or a number; 0 means no noise.
        log_odds: prior log odds of a one [U, F].
    """
    fits = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    chance = torch.empty_like(log_odds)
    exact = isinstance(variance, float) and variance == 0
    for attempt, rest, odds in attempts(fits, log_odds, restarts if exact else 0, rng):
        prior = odds.sigmoid()
        own = measurements if measurements.matrix.dim() == 2 else Measurements(measurements.matrix[rest])
        noise = variance if isinstance(variance, float) or variance.dim() < 2 else variance[rest]
        start = (prior, prior * (1 - prior))
        found = message_passing(own, values[rest], noise, start, bernoulli(odds), sweeps=sweeps).mean
        if not attempt:
            chance[rest] = found
        if exact:
            bits = (found > 0.5).to(found)
            good = fitting(own, values[rest], bits)
            chance[rest[good]] = bits[good]
            fits[rest[good]] = True
    rest = (~fits).nonzero().squeeze(1)
    if exact and len(rest):
        own = measurements if measurements.matrix.dim() == 2 else Measurements(measurements.matrix[rest])
        bits = nearest_column(own, own.matrix.square().sum(-2), values[rest])
        good = fitting(own, values[rest], bits)
        chance[rest[good]] = bits[good]
        fits[rest[good]] = True
    return Bits(chance, fits)
