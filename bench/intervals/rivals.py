"""Other intervals of a mean over clusters, which ours are measured against in ``coverage.py``.

All are of a ratio of sums over clusters, ``sum(top) / sum(bottom)``: a rate has hits over targets, an advantage net
gains over what the control leaves. Arguments are [R, C], results (low, high) [R] each, at 95 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import beta, norm
from scipy.stats import t as student

Floats = NDArray[np.float64]
Limits = tuple[Floats, Floats]
RESAMPLES = 599
TAILS = (0.025, 0.975)


def linearised(top: Floats, bottom: Floats) -> tuple[Floats, Floats]:
    """Return the ratio [R] and its linearised standard error [R]."""
    clusters = top.shape[1]
    ratio = top.sum(1) / bottom.sum(1)
    residual = top - ratio[:, None] * bottom
    return ratio, np.sqrt(clusters / (clusters - 1) * (residual**2).sum(1)) / bottom.sum(1)


def jackknife(top: Floats, bottom: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the ratio [R], its jackknife standard error [R], and the ratio without each cluster [R, C]."""
    clusters = top.shape[1]
    ratio = top.sum(1) / bottom.sum(1)
    without = (top.sum(1, keepdims=True) - top) / (bottom.sum(1, keepdims=True) - bottom)
    error = np.sqrt((clusters - 1) / clusters * ((without - ratio[:, None]) ** 2).sum(1))
    return ratio, error, without


def plain_t(top: Floats, bottom: Floats) -> Limits:
    ratio, error = linearised(top, bottom)
    reach = student.ppf(TAILS[1], top.shape[1] - 1) * error
    return ratio - reach, ratio + reach


def jackknife_t(top: Floats, bottom: Floats) -> Limits:
    ratio, error, _ = jackknife(top, bottom)
    reach = student.ppf(TAILS[1], top.shape[1] - 1) * error
    return ratio - reach, ratio + reach


def logit_t(top: Floats, bottom: Floats) -> Limits:
    """The plain t-interval on the logit of the ratio."""
    ratio, error = linearised(top, bottom)
    inside = np.clip(ratio, 1e-9, 1 - 1e-9)
    reach = student.ppf(TAILS[1], top.shape[1] - 1) * error / (inside * (1 - inside))
    return expit(logit(inside) - reach), expit(logit(inside) + reach)


def korn_graubard(top: Floats, bottom: Floats) -> Limits:
    """Clopper and Pearson's limits at the effective number of targets; at the actual one where that cannot be told."""
    clusters = top.shape[1]
    ratio, error = linearised(top, bottom)
    targets = bottom.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = ratio * (1 - ratio) / error**2
    effective = effective * (student.ppf(TAILS[1], targets - 1) / student.ppf(TAILS[1], clusters - 1)) ** 2
    effective = np.minimum(np.where(np.isfinite(effective), effective, targets), targets)
    x = effective * ratio
    low, high = beta.ppf(TAILS[0], x, effective - x + 1), beta.ppf(TAILS[1], x + 1, effective - x)
    return np.where(ratio <= 0, 0, low), np.where(ratio >= 1, 1, high)


def resamplings(top: Floats, bottom: Floats, rng: np.random.Generator) -> dict[str, Limits]:
    """Return the limits of four bootstraps over clusters; one set of resamples serves all runs."""
    clusters = top.shape[1]
    ratio, error = linearised(top, bottom)
    times = rng.multinomial(clusters, np.full(clusters, 1 / clusters), RESAMPLES).T.astype(np.float64)  # [C, B]
    a, b = top @ times, bottom @ times
    again = a / np.maximum(b, 1e-9)  # nothing to be gained in any cluster drawn: nothing gained
    squares = (top**2) @ times - 2 * again * ((top * bottom) @ times) + again**2 * ((bottom**2) @ times)
    errors = np.sqrt(clusters / (clusters - 1) * np.maximum(squares, 0)) / np.maximum(b, 1e-9)
    studentised = (again - ratio[:, None]) / np.maximum(errors, 1e-9)
    low_t, high_t = np.quantile(studentised, TAILS, axis=1)
    symmetric = np.quantile(np.abs(studentised), 0.95, axis=1) * error
    low, high = np.quantile(again, TAILS, axis=1)
    return {
        "percentile": (low, high),
        "bootstrap-t": (ratio - high_t * error, ratio - low_t * error),
        "symmetric bootstrap-t": (ratio - symmetric, ratio + symmetric),
        "BCa": _accelerated(top, bottom, again, ratio),
    }


def _accelerated(top: Floats, bottom: Floats, again: Floats, ratio: Floats) -> Limits:
    """Bias-corrected and accelerated percentiles of the resampled ratios ``again`` [R, B]."""
    resamples = again.shape[1]
    below = (again < ratio[:, None]).mean(1) + (again == ratio[:, None]).mean(1) / 2
    bias = norm.ppf(np.clip(below, 1 / resamples, 1 - 1 / resamples))
    without = jackknife(top, bottom)[2]
    distance = without.mean(1, keepdims=True) - without
    acceleration = (distance**3).sum(1) / (6 * np.maximum((distance**2).sum(1), 1e-30) ** 1.5)
    ordered = np.sort(again, axis=1)
    ends = []
    for tail in TAILS:
        z = bias + norm.ppf(tail)
        rank = norm.cdf(bias + z / (1 - acceleration * z)) * (resamples - 1)
        rank = np.clip(np.nan_to_num(rank), 0, resamples - 1).round().astype(np.int64)
        ends.append(np.take_along_axis(ordered, rank[:, None], axis=1)[:, 0])
    return ends[0], ends[1]
