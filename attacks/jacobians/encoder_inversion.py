"""Inversion of GFL-APPNP's encoder: the row that gives the hidden representations that a node sent over many rounds.

``h_t(x) = relu(x W1_t) W2_t`` is piecewise linear in x and the weights of every round are public to all parties. C
equations per round on F unknowns, solved by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963) for all nodes
together, each with its own damping. How well the equations determine a row depends on how far the weights travel; the
posterior covariance shows it, node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.attacks.jacobians.clipped_outputs import clipped, clipped_slope
from fglaudit.attacks.jacobians.encoder import Model

_NUMBERS_AT_ONCE = 1 << 24
_STEPS_PER_LEVEL = 6
FITS = 4.0
"""Largest root mean square residual, in standard deviations, of a row that explains its node's representations."""


_EXACT = 1e-3 / 3
"""Posterior deviation of an entry, relative to the row's root mean square, below which a row is claimed exact."""


@dataclass(frozen=True)
class Inverted:
    """Rows from hidden representations.

    Attributes:
        rows: [N, F], float64.
        deviation: posterior standard deviation of a row's entries, root mean square [N].
        residual: root mean square misfit of the representations in standard deviations of their error [N].
    """

    rows: Tensor
    deviation: Tensor
    residual: Tensor

    @property
    def fits(self) -> Tensor:
        """Whether the solver found a row that explains the representations [N]."""
        return self.residual <= FITS


def invert_encoder(
    hidden: Tensor,
    models: Sequence[Model],
    error: Tensor,
    start: Tensor,
    prior: Tensor,
    precision: Tensor,
    *,
    clip: KnownClip | None = None,
    steps: int = 40,
) -> Inverted:
    """Return the rows that explain ``hidden`` best.

    Args:
        hidden: representations of every node in every round [N, T, C].
        models: of the T rounds.
        error: standard deviation of their error [N].
        start: first guess of the rows [N, F].
        prior, precision: prior mean [N, F] and inverse variance [N] of the rows' entries.
        clip: of each representation before it got its error.
        steps: Gauss-Newton steps.
    """
    w1 = torch.stack([m.w1 for m in models])
    w2 = torch.stack([m.w2 for m in models])
    encoder = _Encoder(w1, w2, clip)
    size = max(1, _NUMBERS_AT_ONCE // (hidden.shape[1] * hidden.shape[2] * start.shape[1]))
    parts = []
    for part in torch.split(torch.arange(len(hidden), device=hidden.device), size):
        given = [value[part].double() for value in (hidden, error, start, prior, precision)]
        parts.append(_invert(given[0], given[1], given[2], given[3], given[4], encoder, steps))
    return Inverted(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def exactness(rows: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidences [N], and which of ``rows`` [N, F] with posterior ``deviation`` [N] count as exact [N]."""
    size = rows.norm(dim=1) / rows.shape[1] ** 0.5
    relative = deviation / size.clamp(min=1e-30)
    return 1 / (1 + (relative / _EXACT).square()), relative < _EXACT


@dataclass(frozen=True)
class _Encoder:
    """What is sent of a row in T rounds.

    Attributes:
        w1, w2: weights [T, F, H] and [T, H, C].
        clip: of each representation.
    """

    w1: Tensor
    w2: Tensor
    clip: KnownClip | None


def linear_start(hidden: Tensor, models: Sequence[Model], prior: Tensor, precision: Tensor) -> Tensor:
    """Return the rows [N, F] that explain ``hidden`` [N, T, C] best if every unit passes half of its input.

    That is the average over random rows.

    Args:
        prior, precision: as in :func:`invert_encoder`.
    """
    slope = torch.stack([0.5 * m.w1 @ m.w2 for m in models]).transpose(1, 2).flatten(0, 1)
    error = 0.3 * hidden.square().mean((1, 2)).sqrt().clamp(min=1e-30)
    left, value, right = torch.linalg.svd(slope, full_matrices=False)
    ridge = (precision * error.square())[:, None]
    misfit = hidden.flatten(1) - prior @ slope.mT
    gain = (misfit @ left) * value / (value.square() + ridge)
    start: Tensor = prior + gain @ right
    return start


def _invert(
    hidden: Tensor, error: Tensor, rows: Tensor, prior: Tensor, precision: Tensor, encoder: _Encoder, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [n, F], their posterior deviation [n] and the misfit [n] of their representations.

    The error allowed shrinks in stages to the true one; of each node the row of the last stage that it fits is kept.

    Args:
        hidden: [n, T, C].
        error: standard deviation of ``hidden`` [n].
        rows: start [n, F].
        prior, precision: prior mean [n, F] and inverse variance [n].
        encoder: of T rounds.
        steps: Gauss-Newton steps.
    """
    coarse = hidden.square().mean((1, 2)).sqrt()
    kept, level = rows, torch.full_like(error, torch.inf)
    levels = -(-steps // _STEPS_PER_LEVEL)
    for index in range(levels):
        allowed = torch.maximum(error, coarse * 0.1 ** (1 + index)) if index < levels - 1 else error
        damping = torch.full_like(error, 1e-3)
        cost = _cost(hidden, allowed, rows, prior, precision, encoder)
        for _ in range(_STEPS_PER_LEVEL):
            slope, misfit = _linearised(hidden, allowed, rows, encoder)
            toward_prior = precision[:, None] * (prior - rows)
            scale = slope.square().sum((1, 2)) / rows.shape[1] + precision
            trial = rows + _solve(slope, misfit, toward_prior, precision + damping * scale)
            value = _cost(hidden, allowed, trial, prior, precision, encoder)
            better = value < cost
            rows = torch.where(better[:, None], trial, rows)
            cost = torch.where(better, value, cost)
            damping = torch.where(better, damping / 10, damping * 4).clamp(1e-15, 1e6)
        _, predicted = _forward(rows, encoder)
        fits = (hidden - clipped(predicted, encoder.clip)).square().mean((1, 2)).sqrt() <= FITS * allowed
        kept = torch.where(fits[:, None], rows, kept)
        level = torch.where(fits, allowed, level)
    slope, misfit = _linearised(hidden, error, kept, encoder)
    deviation = _deviation(slope * (error / level)[:, None, None], precision)
    return kept, deviation, misfit.square().mean(1).sqrt()


def _forward(rows: Tensor, encoder: _Encoder) -> tuple[Tensor, Tensor]:
    """Return inputs of the hidden units [n, T, H] and representations [n, T, C] of ``rows`` [n, F] before a clip."""
    before = torch.einsum("nf,tfh->nth", rows, encoder.w1)
    return before, torch.einsum("nth,thc->ntc", before.relu(), encoder.w2)


def _cost(hidden: Tensor, error: Tensor, rows: Tensor, prior: Tensor, precision: Tensor, encoder: _Encoder) -> Tensor:
    """Return twice the negative log posterior of ``rows``, up to a constant [n].

    Args:
        hidden: [n, T, C].
        error: standard deviation of ``hidden`` [n].
        rows: [n, F].
        prior, precision: prior mean [n, F] and inverse variance [n].
        encoder: of T rounds.
    """
    _, predicted = _forward(rows, encoder)
    misfit = ((hidden - clipped(predicted, encoder.clip)) / error[:, None, None]).square().sum((1, 2))
    return misfit + precision * (rows - prior).square().sum(1)


def _linearised(hidden: Tensor, error: Tensor, rows: Tensor, encoder: _Encoder) -> tuple[Tensor, Tensor]:
    """Return the derivative [n, TC, F] and the misfit [n, TC] of the representations, in standard deviations.

    Args:
        hidden: [n, T, C].
        error: standard deviation of ``hidden`` [n].
        rows: [n, F].
        encoder: of T rounds.
    """
    before, predicted = _forward(rows, encoder)
    gate = (before > 0).to(encoder.w2)[..., None] * encoder.w2
    slope = torch.einsum("nthc,tfh->ntcf", gate, encoder.w1)
    slope = clipped_slope(predicted, slope, encoder.clip).flatten(1, 2)
    misfit = (hidden - clipped(predicted, encoder.clip)) / error[:, None, None]
    return slope / error[:, None, None], misfit.flatten(1)


def _solve(slope: Tensor, misfit: Tensor, toward_prior: Tensor, ridge: Tensor) -> Tensor:
    """Return the step (slope' slope + ridge I)^-1 (slope' misfit + toward_prior) [n, F].

    The smaller of both Gram matrices is factored.
    """
    right = torch.einsum("nmf,nm->nf", slope, misfit) + toward_prior
    if slope.shape[1] < slope.shape[2]:  # Woodbury
        inner = slope @ slope.mT
        inner.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
        left = torch.linalg.solve(inner, torch.einsum("nmf,nf->nm", slope, right))
        woodbury: Tensor = (right - torch.einsum("nmf,nm->nf", slope, left)) / ridge[:, None]
        return woodbury
    gram = slope.mT @ slope
    gram.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
    step: Tensor = torch.linalg.solve(gram, right)
    return step


def _deviation(slope: Tensor, precision: Tensor) -> Tensor:
    """Return the root mean square posterior standard deviation of a row's entries [n]."""
    rows, features = slope.shape[1:]
    values = torch.linalg.eigvalsh(slope @ slope.mT if rows < features else slope.mT @ slope).clamp(min=0)
    trace = (1 / (values + precision[:, None])).sum(1) + max(0, features - rows) / precision
    deviation: Tensor = (trace / features).sqrt()
    return deviation
