"""Is a mechanism's trade-off curve where it is said to be? A test on scores of independent replays in two worlds.

Guess "the record is there" where the score is beyond a threshold. If the stated curve f is true, the rates of false
alarms a and of hits h of any such test have ``h <= 1 - f(a)``. Threshold, side and the way in which both counts are
joined are chosen on a fifth of the replays; on the others the counts are binomial and independent, so for every a

* ``p_hits(a) = P[Binomial(n1, 1 - f(a)) >= hits]`` and ``p_alarms(a) = P[Binomial(n0, a) <= alarms]`` are p-values,
* joined by Fisher's sum or by a weighted sum of normal quantiles (Stouffer; weights fixed beforehand),

and the largest joined p-value over all a in [0, 1] is the p-value of "the curve is not below f". Between two points of
the grid of a the first count is taken at the upper and the second at the lower end, so nothing is missed in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from scipy.stats import beta as beta_distribution
from scipy.stats import binom, norm
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.privacy.tradeoff import TradeOff, narrowed

Array = npt.NDArray[np.float64]

CHOOSING = 0.2
"""Share of the replays by which the test is chosen."""
MAX_THRESHOLDS = 48
FINALISTS = 6
"""Thresholds, best by Fisher's sum, for which the weighted sum is tried too."""
CAUTION = 0.1
"""Quantile at which rates seen in few replays are taken when choosing."""
MIN_REPLAYS = 40
RATES = (3e-4, 1e-3, 3e-3, 0.01, 0.05, 0.15, 0.3)
"""Of false alarms, at which power is looked for: random reports are told apart best where they seldom lie."""
_TAILS = np.concatenate([[0.0], np.geomspace(1e-14, 1e-3, 60), np.linspace(1.2e-3, 0.5, 300)])
ALPHAS: Array = np.concatenate([_TAILS, 1 - _TAILS[-2::-1]])
"""Grid of rates of false alarms, from 0 to 1."""
_SMALLEST_P = 1e-300
_CUT = 6.5
_DRAWS = 60
_MOST = 60.0


@dataclass(frozen=True)
class Joined:
    """How the p-values of two counts become one: Stouffer's ``weights``, or Fisher's sum where they are None."""

    weights: tuple[float, float] | None = None

    def p(self, hits: Array, alarms: Array) -> Array:
        """Return joined p-values; at most 1."""
        hits, alarms = np.maximum(hits, _SMALLEST_P), np.maximum(alarms, _SMALLEST_P)
        if self.weights is None:
            product = np.log(hits) + np.log(alarms)
            return np.asarray(np.exp(product) * (1 - product))
        first, second = self.weights
        # Against a rate that is far too small for it a count has p = 1, the quantile -inf: cut there, which a joined
        # p-value pays for with the probability of what was cut.
        found = [np.maximum(-ndtri(np.minimum(p, 1.0)), -_CUT) for p in (hits, alarms)]
        sum_ = first * found[0] + second * found[1]
        return np.asarray(np.minimum(norm.sf(sum_ / math.hypot(first, second)) + 2 * norm.sf(_CUT), 1.0))


@dataclass(frozen=True)
class Curve:
    """A stated curve on the grid, so that its many evaluations are made once."""

    stated: TradeOff
    hits: Array

    @staticmethod
    def of(stated: TradeOff) -> Curve:
        return Curve(stated, 1 - stated.beta(ALPHAS))

    def p_value(self, hits: Array, hit_runs: int, alarms: Array, alarm_runs: int, how: Joined) -> Array:
        """Return p-values [...] of counts [...]: see the module."""
        return self.p_values(hits, hit_runs, alarms, alarm_runs, (how,))[0]

    def p_values(
        self, hits: Array, hit_runs: int, alarms: Array, alarm_runs: int, ways: Sequence[Joined]
    ) -> list[Array]:
        """Return the p-values [...] of counts [...] for every way to join them; the tails of equal counts are computed
        once, since they cost more than all else."""
        (more, at_hits), (fewer, at_alarms) = (np.unique(counts, return_inverse=True) for counts in (hits, alarms))
        upper = np.asarray(binom.sf(more[:, None] - 1, hit_runs, self.hits[1:]))[at_hits]
        lower = np.asarray(binom.cdf(fewer[:, None], alarm_runs, ALPHAS[:-1]))[at_alarms]
        return [np.asarray(how.p(upper, lower).max(-1)).reshape(np.shape(hits)) for how in ways]

    def weights(self, hits: float, alarms: float, hit_runs: int, alarm_runs: int) -> tuple[float, float]:
        """Return the weights with which a small move along the curve leaves the sum as it is, near such rates."""
        near = int(np.clip(np.searchsorted(ALPHAS, alarms), 1, len(ALPHAS) - 1))
        slope = (self.hits[near] - self.hits[near - 1]) / (ALPHAS[near] - ALPHAS[near - 1])
        spread = [math.sqrt(max(r * (1 - r), 1 / n) / n) for r, n in ((hits, hit_runs), (alarms, alarm_runs))]
        return spread[0] / float(np.clip(slope, 1e-3, 1e6)), spread[1]


@dataclass(frozen=True)
class CurveTest:
    """What the counted replays say of a stated curve.

    Attributes:
        p_value: probability at most, if the curve is as stated, of counts that speak so strongly against it.
        hits, alarms: rates among the replays that were counted.
        replays: counted, per world.
    """

    p_value: float
    hits: float
    alarms: float
    replays: int

    def corrected(self, tests: int) -> float:
        """Return the p-value of the smallest of ``tests`` many (Bonferroni)."""
        return min(1.0, tests * self.p_value)


def curve_test(present: Tensor, absent: Tensor, stated: TradeOff | Curve, *, rng: torch.Generator) -> CurveTest:
    """Test whether the mechanism's curve is not below ``stated``.

    Args:
        present, absent: scores of independent replays with the record [n1] and without [n0], larger where it seems
            there. Both directions are tried, on the replays that choose.
        rng: separates the replays that choose from those that are counted.

    Raises:
        FglauditError: if there are fewer than 40 replays in a world, or a score is not finite.
    """
    curve = stated if isinstance(stated, Curve) else Curve.of(stated)
    for scores in (present, absent):
        if scores.dim() != 1 or len(scores) < MIN_REPLAYS or not bool(torch.isfinite(scores).all()):
            raise FglauditError(
                f"a test of a curve needs one finite score for each of at least {MIN_REPLAYS} replays per world; got"
                f" shape {tuple(scores.shape)}, {int((~torch.isfinite(scores)).sum().item())} not finite; replay more"
            )
    (choose_in, count_in), (choose_out, count_out) = _separate(present, rng), _separate(absent, rng)
    threshold, side, how = _chosen(choose_in, choose_out, curve, len(count_in), len(count_out))
    yes_in, yes_out = int((count_in >= threshold).sum()), int((count_out >= threshold).sum())
    hits, hit_runs, alarms, alarm_runs = side.of(yes_in, len(count_in), yes_out, len(count_out))
    p = float(curve.p_value(np.array(hits), hit_runs, np.array(alarms), alarm_runs, how))
    return CurveTest(min(p, 1.0), hits / hit_runs, alarms / alarm_runs, min(hit_runs, alarm_runs))


def _separate(scores: Tensor, rng: torch.Generator) -> tuple[Array, Array]:
    shuffled: Array = scores.detach().double().cpu()[torch.randperm(len(scores), generator=rng)].numpy()
    first = int(CHOOSING * len(shuffled))
    return shuffled[:first], shuffled[first:]


@dataclass(frozen=True)
class _Side:
    """Which guess a test makes: yes "the record is there" or "it is not", at scores above the threshold or below."""

    there: bool
    above: bool

    def of(self, above_in: Any, runs_in: int, above_out: Any, runs_out: int) -> tuple[Any, int, Any, int]:
        """Return hits, runs where yes is right, false alarms, and runs where it is wrong."""
        yes_in, yes_out = (above_in, above_out) if self.above else (runs_in - above_in, runs_out - above_out)
        return (yes_in, runs_in, yes_out, runs_out) if self.there else (yes_out, runs_out, yes_in, runs_in)


_SIDES = tuple(_Side(there, above) for there in (True, False) for above in (True, False))


def _chosen(
    scores_in: Array, scores_out: Array, curve: Curve, runs_in: int, runs_out: int
) -> tuple[float, _Side, Joined]:
    """Return threshold, side, and how to join the counts: the smallest p-value to be expected."""
    pool = np.unique(np.concatenate([scores_in, scores_out]))
    pool = pool[np.unique(np.linspace(min(1, len(pool) - 1), len(pool) - 1, MAX_THRESHOLDS).round().astype(int))]
    above_in = len(scores_in) - np.searchsorted(np.sort(scores_in), pool)
    above_out = len(scores_out) - np.searchsorted(np.sort(scores_out), pool)
    best, found = math.inf, (float(pool[0]), _SIDES[0], Joined())
    for side in _SIDES:
        hits, hit_size, alarms, alarm_size = side.of(above_in, len(scores_in), above_out, len(scores_out))
        if hits.sum() * alarm_size < alarms.sum() * hit_size:
            continue  # the opposite guess is better
        runs = (runs_in, runs_out) if side.there else (runs_out, runs_in)
        # Unlikely rates, not those seen: among many thresholds the luckiest would otherwise look best.
        low = beta_distribution.ppf(CAUTION, hits + 0.5, hit_size - hits + 0.5)
        high = beta_distribution.ppf(1 - CAUTION, alarms + 0.5, alarm_size - alarms + 0.5)
        counted = np.floor(low * runs[0]), runs[0], np.ceil(high * runs[1]), runs[1]
        fisher = curve.p_value(*counted, Joined())
        best, found = min((best, found), (float(fisher.min()), (float(pool[fisher.argmin()]), side, Joined())), key=_p)
        for index in fisher.argsort()[:FINALISTS]:
            how = Joined(curve.weights(float(low[index]), float(high[index]), *runs))
            p = float(curve.p_value(counted[0][index], runs[0], counted[2][index], runs[1], how))
            if p < best:
                best, found = p, (float(pool[index]), side, how)
    return found


def _p(pair: tuple[float, tuple[float, _Side, Joined]]) -> float:
    return pair[0]


def power(stated: TradeOff | Curve, actual: TradeOff, replays: int, level: float) -> float:
    """Return the probability that ``replays`` replays per world, of a mechanism whose curve is ``actual``, refute the
    stated curve at ``level``.

    Counts are drawn ``_DRAWS`` times at the best of a few thresholds and of both ways to join them; that the real one
    is chosen on few replays and is not the best costs about a third of the replays, which are left out
    (``tests/empirical/test_curve_test.py``).
    """
    curve = stated if isinstance(stated, Curve) else Curve.of(stated)
    runs = int(2 / 3 * (replays - int(CHOOSING * replays)))
    rng = np.random.default_rng(0)
    best = 0.0
    for alarms in RATES:
        hits = actual.hits(alarms)
        drawn = np.stack([rng.binomial(runs, hits, _DRAWS), rng.binomial(runs, alarms, _DRAWS)], 1).astype(np.float64)
        ways = Joined(curve.weights(hits, alarms, runs, runs)), Joined()
        for p in curve.p_values(drawn[:, 0], runs, drawn[:, 1], runs, ways):
            best = max(best, float((p <= level).mean()))
    return best


def largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Return the largest epsilon, or mu, up to ``_MOST`` that is ``refuted``; all smaller ones are too."""
    low, high = 0.0, _MOST
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def largest_epsilon(stated: TradeOff, replays: int, level: float, delta: float) -> float:
    """Return an epsilon up to which as many replays can refute at ``level``, every guess right.

    Of a Gaussian mechanism at ``delta``, with any noise. Of another one the larger of a pure epsilon, and that at
    ``delta`` of the same mechanism with noise smaller by 1, 2 or 4.
    """
    runs = replays - int(CHOOSING * replays)

    def refuted(curve: TradeOff) -> bool:
        rates = 1 - curve.beta(ALPHAS[1:])
        best = Joined().p(np.asarray(binom.sf(runs - 1, runs, rates)), np.asarray(binom.cdf(0, runs, ALPHAS[:-1])))
        return float(np.max(best)) <= level

    gaussian = stated.mu is not None
    low = largest_refuted(lambda x: refuted(TradeOff.gaussian(x) if gaussian else TradeOff(None, (x,), (0.0,))))
    if gaussian:
        return TradeOff.gaussian(low).epsilon(delta)
    for factor in (1.0, 2.0, 4.0):
        if stated.event is None or stated.relation is None:
            break
        curve = TradeOff.of(narrowed(stated.event, factor), stated.relation)
        if not refuted(curve):
            break
        low = max(low, curve.epsilon(delta))
    return low
