"""A distinguishing test on scores: guess "the canary is there" where the score is beyond a threshold.

The threshold and the side are chosen on one part of the runs and counted on the other, so the counts are those of a
test that was fixed beforehand and need no correction for the choice. Both sides count: a bound holds for either order
of the two neighbouring data sets, so guessing "it is not there" is a test as good as its opposite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import beta
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound, error_probability
from fglaudit.errors import FglauditError

CHOOSING = 0.2
"""Share of the runs on which a test is chosen. A good threshold is easy to find, a small error rate is costly to
bound."""
MAX_THRESHOLDS = 64
CAUTION = 0.05
"""Quantile at which rates seen in few runs are taken when choosing."""
MIN_RUNS = 20

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How often a test said yes, in runs of the world that it asks for and of the other one. Broadcastable arrays.

    Attributes:
        hits, hit_runs: yes among the runs where yes is right.
        alarms, alarm_runs: yes among the runs where yes is wrong.
    """

    hits: Array
    hit_runs: Array
    alarms: Array
    alarm_runs: Array

    @staticmethod
    def of(hits: float, hit_runs: float, alarms: float, alarm_runs: float) -> Counts:
        return Counts(*(np.asarray(v, dtype=np.float64) for v in (hits, hit_runs, alarms, alarm_runs)))

    def limits(self, hit_error: float, alarm_error: float) -> tuple[Array, Array]:
        """Return one-sided Clopper-Pearson limits: the rate of hits is at least, that of alarms at most, ...

        Args:
            hit_error, alarm_error: the probabilities of being wrong.
        """
        low = _limit(self.hits, self.hit_runs - self.hits + 1, hit_error, where=self.hits > 0, otherwise=0.0)
        high = _limit(
            self.alarms + 1,
            self.alarm_runs - self.alarms,
            1 - alarm_error,
            where=self.alarms < self.alarm_runs,
            otherwise=1.0,
        )
        return low, high


def _limit(a: Array, b: Array, quantile: float, *, where: npt.NDArray[np.bool_], otherwise: float) -> Array:
    """Return the quantile of Beta(a, b) ``where`` it exists; all arrays broadcast to one shape."""
    a, b, where = np.broadcast_arrays(a, b, where)
    safe = np.asarray(beta.ppf(quantile, np.where(where, a, 1.0), np.where(where, b, 1.0)))
    return np.where(where, safe, otherwise)


def count_test(present: Tensor, absent: Tensor, value: Callable[[Counts], Array], rng: torch.Generator) -> Counts:
    """Choose threshold and side on a random fifth of the runs and return the counts on the rest.

    Args:
        present: scores of independent runs with the canary [n1].
        absent: scores of independent runs without it [n0].
        value: what the counts are worth; the test with the largest value is chosen.

    Raises:
        FglauditError: if there are fewer than 20 runs of either kind, or a score is not finite.
    """
    for name, scores in (("with", present), ("without", absent)):
        if scores.dim() != 1 or len(scores) < MIN_RUNS:
            raise FglauditError(
                f"a distinguishing test needs at least {MIN_RUNS} runs {name} the canary, one score each; got shape "
                f"{tuple(scores.shape)}; run more"
            )
        if not bool(torch.isfinite(scores).all()):
            raise FglauditError(
                f"scores must be finite; a run {name} the canary has {scores[~torch.isfinite(scores)][0].item()}"
            )
    choose_in, count_in = _separate(present, rng)
    choose_out, count_out = _separate(absent, rng)
    pool = np.unique(np.concatenate([choose_in, choose_out]))
    pool = pool[min(1, len(pool) - 1) :]  # from the lowest score upwards a test always says yes
    pool = pool[np.unique(np.linspace(0, len(pool) - 1, MAX_THRESHOLDS).round().astype(int))]
    threshold, above = _best(pool, choose_in, choose_out, value, len(count_in), len(count_out))
    yes_in = float((count_in >= threshold).sum())
    yes_out = float((count_out >= threshold).sum())
    if above:
        return Counts.of(yes_in, len(count_in), yes_out, len(count_out))
    return Counts.of(len(count_out) - yes_out, len(count_out), len(count_in) - yes_in, len(count_in))


def _separate(scores: Tensor, rng: torch.Generator) -> tuple[Array, Array]:
    order = torch.randperm(len(scores), generator=rng)
    shuffled: npt.NDArray[Any] = scores.detach().double().cpu()[order].numpy()
    first = int(CHOOSING * len(shuffled))
    return shuffled[:first], shuffled[first:]


def bound_from_runs(
    present: Tensor,
    absent: Tensor,
    limit: Callable[[Counts, float], Array],
    epsilon: Callable[[float], float],
    *,
    method: str,
    delta: float,
    confidence: float,
    rng: torch.Generator,
    tried: int,
) -> Bound:
    """Return the bound on epsilon of a method that counts hits and false alarms.

    Args:
        present, absent: scores of independent runs with the canary [n1] and without it [n0].
        limit: of counts and an error probability, what the method bounds from below.
        epsilon: the epsilon that such a bound implies.

        Raises:
            FglauditError: see :func:`error_probability` and :func:`count_test`.
    """
    error = error_probability(confidence, tried, delta)
    counts = count_test(present, absent, lambda c: limit(c, error), rng)
    perfect = Counts(counts.hit_runs, counts.hit_runs, np.zeros(1), counts.alarm_runs)

    def at(total: float) -> float:
        return epsilon(limit(counts, total / tried).item())

    return Bound(
        epsilon=at(error * tried),
        delta=delta,
        confidence=confidence,
        method=method,
        trials=int(counts.hit_runs + counts.alarm_runs),
        ceiling=epsilon(limit(perfect, error).item()),
        at=at,
    )


def _best(
    thresholds: Array,
    scores_in: Array,
    scores_out: Array,
    value: Callable[[Counts], Array],
    runs_in: int,
    runs_out: int,
) -> tuple[float, bool]:
    """Return the threshold with the largest value expected on the other runs, and whether yes lies above it.

    ``thresholds`` are [t], scores of the runs where the canary is in [n1] and where it is out [n0]."""
    above_in = len(scores_in) - np.searchsorted(np.sort(scores_in), thresholds).astype(np.float64)
    above_out = len(scores_out) - np.searchsorted(np.sort(scores_out), thresholds).astype(np.float64)
    n_in, n_out = np.full(1, float(runs_in)), np.full(1, float(runs_out))

    def expected(hits: Array, hit_runs: int, alarms: Array, alarm_runs: int, n: Array, m: Array) -> Array:
        """Return the value [t] of each threshold at cautious rates; ``hits``, ``alarms`` [t], ``n``, ``m`` [1]."""
        # Unlikely rates, not those seen: among many thresholds the luckiest would otherwise look best.
        low = beta.ppf(CAUTION, hits + 0.5, hit_runs - hits + 0.5)
        high = beta.ppf(1 - CAUTION, alarms + 0.5, alarm_runs - alarms + 0.5)
        return value(Counts(low * n, n, high * m, m))

    below_in, below_out = len(scores_in) - above_in, len(scores_out) - above_out
    upwards = expected(above_in, len(scores_in), above_out, len(scores_out), n_in, n_out)
    downwards = expected(below_out, len(scores_out), below_in, len(scores_in), n_out, n_in)
    if upwards.max() >= downwards.max():
        return float(thresholds[upwards.argmax()]), True
    return float(thresholds[downwards.argmax()]), False
