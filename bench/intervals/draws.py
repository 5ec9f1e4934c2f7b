"""Clusters with a known truth, for ``coverage.py``: hits and scores of attacks and their control."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from fglaudit.rng import derive

Floats = NDArray[np.float64]
TARGETS = 30
"""Mean number of targets per cluster."""
SCORE_CONCENTRATION = 4.0
"""a + b of the Beta distribution of a single target's score."""


class Drawn(NamedTuple):
    """Sums per run and cluster [R, C]: of the control, and of what the attack gained and lost against it."""

    control: Floats
    gained: Floats
    lost: Floats


def generator(*path: str | int) -> np.random.Generator:
    """Return numpy's generator for one purpose."""
    return np.random.default_rng(derive(0, "intervals", *path).initial_seed())


def cluster_sizes(clusters: int, sizes: str) -> Floats:
    """Targets per cluster [C]: all alike, or falling like 1, 1/2, 1/3, ... ("uneven")."""
    if sizes == "equal":
        return np.full(clusters, float(TARGETS))
    shares = 1 / np.arange(1, clusters + 1)
    return np.asarray((shares / shares.sum() * clusters * TARGETS).round().clip(min=2.0), dtype=np.float64)


def cluster_rates(
    rng: np.random.Generator, rate: float, correlation: float, shape: str, counts: tuple[int, int]
) -> Floats:
    """Draw the clusters' own rates [R, C]: Beta, or "mixture": every cluster is all or nothing with probability
    ``correlation``, else exactly ``rate``."""
    if shape == "mixture":
        sure = (rng.random(counts) < rate).astype(np.float64)
        return np.where(rng.random(counts) < correlation, sure, np.full(counts, rate))
    return _beta_quantiles(rng.random(counts), rate, correlation)


def hits(rng: np.random.Generator, sizes: Floats, rate: float, correlation: float, shape: str, runs: int) -> Floats:
    """Draw the number of hits [R, C] in clusters of ``sizes`` [C]."""
    rates = cluster_rates(rng, rate, correlation, shape, (runs, len(sizes)))
    return rng.binomial(sizes.astype(np.int64), rates).astype(np.float64)


def trained_hits(rng: np.random.Generator, sizes: Floats, rates: Floats, correlation: float) -> Floats:
    """Draw the number of hits [R, C] in clusters of ``sizes`` [C] around ``rates`` [R, C] of their trainings."""
    concentration = (1 - correlation) / correlation
    around = rates.clip(1e-9, 1 - 1e-9)
    own = rng.beta(around * concentration, (1 - around) * concentration)
    return rng.binomial(sizes.astype(np.int64), own).astype(np.float64)


def paired_hits(
    rng: np.random.Generator, sizes: Floats, value: float, control: float, correlation: float, tie: str, runs: int
) -> Drawn:
    """Draw hits of an attack with rate ``value`` and of its control with rate ``control``.

    Args:
        tie: how the attack hangs together with its control. "independent": not at all. "alike": where the control does
            well, so does the attack. "superset": the attack has every hit of the control. "copy": it says what the
            control says at four targets of five. "opposed": it does well where the control does badly.
    """
    n = sizes.astype(np.int64)
    u = rng.random((runs, len(sizes)))
    guessed = rng.binomial(n, _beta_quantiles(u, control, correlation))
    if tie == "superset":
        rate = _beta_quantiles(rng.random(u.shape), (value - control) / (1 - control), correlation)
        gained, lost = rng.binomial(n - guessed, rate), np.zeros_like(guessed)
    elif tie == "copy":
        rate = _beta_quantiles(rng.random(u.shape), control + 5 * (value - control), correlation)
        gained, lost = rng.binomial(n - guessed, rate / 5), rng.binomial(guessed, (1 - rate) / 5)
    else:
        own = {"independent": rng.random(u.shape), "alike": u, "opposed": 1 - u}[tie]
        rate = _beta_quantiles(own, value, correlation)
        gained, lost = rng.binomial(n - guessed, rate), rng.binomial(guessed, 1 - rate)
    return Drawn(*(counts.astype(np.float64) for counts in (guessed, gained, lost)))


def scores(
    rng: np.random.Generator, sizes: Floats, mean: float, correlation: float, control: str, idle: float, runs: int
) -> Drawn:
    """Draw scores in [0, 1]: Beta per target, around a Beta per cluster.

    Args:
        mean: of the attack's score; of what it adds to its control where that is "shared".
        control: "none" (0 everywhere), "independent" (another score with mean 0.3), "shared" (the attack adds a share
            of what its control leaves).
        idle: the share of clusters in which the attack scores exactly what its control does (nothing, without one).
    """
    shape = (runs, len(sizes))
    counts = sizes.astype(np.int64)
    own_means, guess_means = (_score_means(rng, m, correlation, shape) for m in (mean, 0.3))
    active = rng.random(shape) >= idle
    out = [np.zeros(shape) for _ in range(3)]
    for cluster, targets in enumerate(counts.tolist()):  # targets differ per cluster, so one cluster at a time
        own = _score_targets(rng, own_means[:, cluster], correlation, targets) * active[:, [cluster]]
        guess = np.zeros_like(own)
        if control != "none":
            guess = _score_targets(rng, guess_means[:, cluster], correlation, targets)
        moved = own * (1 - guess) if control == "shared" else np.where(active[:, [cluster]], own - guess, 0)
        for total, part in zip(out, (guess, np.maximum(moved, 0), np.maximum(-moved, 0)), strict=True):
            total[:, cluster] = part.sum(1)
    return Drawn(*out)


def score_advantage(mean: float, control: str, idle: float) -> float:
    """Return the true advantage behind :func:`scores`."""
    return (1 - idle) * ((mean - 0.3) / 0.7 if control == "independent" else mean)


class Ranked(NamedTuple):
    """Scores of one run: of positives [P] and negatives [N], and the cluster of each."""

    positive: Floats
    negative: Floats
    clusters: NDArray[np.int64]
    others: NDArray[np.int64]


def ranked(
    rng: np.random.Generator, sizes: Floats, counts: tuple[int, int], correlation: float, shift: float
) -> Ranked:
    """Draw normal scores of ``counts`` positives and negatives, each in a cluster drawn by ``sizes``.

    Args:
        correlation: of two scores of a cluster.
        shift: how much higher those of positives are.
    """
    shares, effects = sizes / sizes.sum(), np.sqrt(correlation) * rng.standard_normal(len(sizes))
    held = [rng.choice(len(sizes), count, p=shares) for count in counts]
    drawn = [effects[c] + np.sqrt(1 - correlation) * rng.standard_normal(len(c)) for c in held]
    return Ranked(drawn[0] + shift, drawn[1], *held)


def ranked_advantage(sizes: Floats, correlation: float, shift: float) -> float:
    """Return the true advantage ``2 AUC - 1`` behind :func:`ranked`: within a cluster its effect plays no part."""
    within = float(((sizes / sizes.sum()) ** 2).sum())
    area = within * norm.cdf(shift / np.sqrt(2 * (1 - correlation))) + (1 - within) * norm.cdf(shift / np.sqrt(2))
    return float(2 * area - 1)


def _beta_quantiles(u: Floats, rate: float, correlation: float) -> Floats:
    if correlation == 0 or rate <= 0:
        return np.full(u.shape, max(rate, 0.0))
    concentration = (1 - correlation) / correlation
    return np.asarray(beta.ppf(u, rate * concentration, (1 - rate) * concentration), dtype=np.float64)


def _between(correlation: float) -> float:
    """Variance of the cluster means over mean (1 - mean)."""
    return correlation / (SCORE_CONCENTRATION + 1)


def _score_means(rng: np.random.Generator, mean: float, correlation: float, shape: tuple[int, int]) -> Floats:
    if correlation == 0:
        return np.full(shape, mean)
    concentration = 1 / _between(correlation) - 1
    return np.clip(rng.beta(mean * concentration, (1 - mean) * concentration, shape), 1e-9, 1 - 1e-9)


def _score_targets(rng: np.random.Generator, means: Floats, correlation: float, targets: int) -> Floats:
    """Scores [R, targets] around ``means`` [R], so that their variance in all is that of SCORE_CONCENTRATION."""
    total = 1 / (SCORE_CONCENTRATION + 1)
    concentration = (1 - _between(correlation)) / ((1 - correlation) * total) - 1
    a, b = means * concentration, (1 - means) * concentration
    return rng.beta(a[:, None], b[:, None], (len(means), targets))
