"""Intervals of rates: of the share of targets that were hit, and of an attack's advantage in it over its control.

Targets of a cluster are taken to be hit together with an intra-cluster correlation of ``CORRELATION``: a stated value,
because a handful of clusters cannot estimate it, and none at all where nothing was hit. The limits invert the exact law
of the total (:mod:`fglaudit.scoring.beta_binomial`). Where every cluster is hit wholly or not at all, and both occur,
the correlation is plainly larger: the limits are then the wider of these and those with correlation 1 (the limits of
Clopper and Pearson over clusters, if these are of one size). Where no target is hit, nothing tells the two apart, and
the stated correlation stands. ``python -m bench intervals`` measures the coverage: docs/intervals.md.

Values between 0 and 1 are allowed: at the same mean they vary less than hits and misses do; their sum is rounded
outwards, to the next count of hits.
"""

from __future__ import annotations

import math

import numpy as np

from fglaudit.errors import FglauditError
from fglaudit.scoring.beta_binomial import BetaBinomialTotal, log_no_hit, rate_high, rate_low
from fglaudit.scoring.clusters import MIN_CLUSTERS, NOTHING, TAIL, Floats, Interval, PairedClusters

CORRELATION = 0.5
"""The intra-cluster correlation that intervals of rates hold for."""
_TAILS_ADD_FROM = 0.1
"""Control rate from which the two parts of an advantage count as wholly dependent; below, in proportion."""

_ROUNDOFF = 1e-8
"""Of sums of values in [0, 1]."""


def advantage_interval(paired: PairedClusters, *, tail: float = TAIL) -> Interval:
    """Return the advantage in a rate, with limits that each have probability ``tail``.

    With g the share that the attack gains of the targets that its control misses, and l the share of all targets that
    it loses to it, the advantage is ``g - l / (1 - control)``. An attack that says what its control says gains and
    loses nothing, whatever the control reaches, and can be held: limits of the value alone could not show that. The
    limits of both parts come from the beta-binomial law and are put together as Zou and Donner (2008) and Donner and
    Zou (2012) do for differences and ratios; a cluster that gains much loses little, so the distances of the limits
    are added up in full where the control is no rarity.
    """
    if not paired.informative:
        return NOTHING
    if len(paired.targets) < MIN_CLUSTERS:
        return paired.range()
    gain = float(paired.gained.sum() / paired.room.sum())
    gain_low, gain_high = rate_limits(paired.room, paired.gained, tail)
    lost, lost_low, lost_high = _loss(paired, tail)
    dependent = min(1.0, paired.control_rate / _TAILS_ADD_FROM)
    below = _joint(gain - gain_low, lost_high - lost, dependent)
    above = _joint(gain_high - gain, lost - lost_low, dependent)
    value = gain - lost
    return Interval(value, value - below, min(value + above, 1.0), "beta-binomial", len(paired.targets))


def advantage_exceeds_zero(paired: PairedClusters, *, tail: float = TAIL) -> bool:
    """Return whether the lower limit of :func:`advantage_interval` lies above 0, without working the limits out.

    The gain's lower limit lies above a rate exactly if as many gains are, at this rate, less probable than ``tail``.
    """
    if not paired.informative or len(paired.targets) < MIN_CLUSTERS:
        return False
    gain, lost = float(paired.gained.sum() / paired.room.sum()), float(paired.lost.sum() / paired.room.sum())
    if gain <= lost:
        return False
    above, dependent = _lost_high(paired, tail) - lost, min(1.0, paired.control_rate / _TAILS_ADD_FROM)
    if not above < gain - lost:  # the rest of the interval's half-width is none at least
        return False
    # The distance of the gain's limit at which both parts together are as much as the advantage, see _joint.
    least = gain + dependent * above - math.sqrt((gain - lost) ** 2 - (1 - dependent**2) * above**2)
    sizes, total, correlations = _law(paired.room, paired.gained)
    hits = math.floor(total + 1e-9)
    return least < 0 or (
        hits > 0 and all(BetaBinomialTotal(sizes, each).at_least(hits, least) < tail for each in correlations)
    )


def clusters_needed(bound: float, targets: int) -> int:
    """Return how many clusters of ``targets`` each without a single hit bring the upper limit down to ``bound``.

    Any hit takes more. So this is what a verdict "held" needs at the least.
    """
    if not 0 < bound < 1:
        raise FglauditError(f"a bound on a rate lies between 0 and 1; got {bound}")
    return max(MIN_CLUSTERS, math.ceil(_times(np.array([float(targets)]), bound)))


def clusters_like(targets: Floats, bound: float) -> int:
    """Return :func:`clusters_needed` for clusters of sizes that are spread as ``targets`` [C] are."""
    return max(MIN_CLUSTERS, math.ceil(len(targets[targets >= 1]) * _times(targets, bound)))


def seeds_needed(bound: float, targets: Floats, seeds: int) -> int:
    """Return how many seeds in all a verdict "held" at ``bound`` needs at the least, each with a partition of its own.

    Args:
        targets: of the clusters that ``seeds`` seeds gave [C].
    """
    few = math.ceil(MIN_CLUSTERS * seeds / max(1, len(targets[targets >= 1])))
    return max(few, math.ceil(seeds * _times(targets, bound)))


def _times(targets: Floats, bound: float) -> float:
    """How many times as many clusters as these bring the upper limit without a hit down to ``bound``."""
    sizes, clusters = np.unique(targets[targets >= 1].astype(np.int64), return_counts=True)
    if len(sizes) == 0:
        raise FglauditError("no cluster has targets, so no number of seeds will do; widen the observer or the split")
    return math.log(TAIL) / float(np.dot(log_no_hit(sizes, bound, CORRELATION), clusters))


def _loss(paired: PairedClusters, tail: float) -> tuple[float, float, float]:
    """What is lost to the control, as a share of what the control leaves: the estimate and its limits."""
    loss, control = float(paired.lost.sum() / paired.targets.sum()), paired.control_rate
    control_low, control_high = rate_limits(paired.targets, paired.control, tail)
    a, a_low, a_high = loss, *rate_limits(paired.targets, paired.lost, tail)
    b, b_low, b_high = 1 - control, 1 - control_high, 1 - control_low
    return loss / (1 - control), ratio_low(a, a_low, b, b_high), ratio_high(a, a_high, b, b_low)


def _lost_high(paired: PairedClusters, tail: float) -> float:
    """The upper limit of :func:`_loss` alone."""
    loss, control = float(paired.lost.sum() / paired.targets.sum()), paired.control_rate
    high, control_high = (_high(paired.targets, hits, tail) for hits in (paired.lost, paired.control))
    return ratio_high(loss, high, 1 - control, 1 - control_high)


def rate_limits(targets: Floats, hits: Floats, tail: float) -> tuple[float, float]:
    """Return the limits, each with probability ``tail``, of the rate behind ``hits`` of ``targets`` [C]; either may be
    sums of values in [0, 1]."""
    return _low(targets, hits, tail), _high(targets, hits, tail)


def _low(targets: Floats, hits: Floats, tail: float) -> float:
    sizes, total, correlations = _law(targets, hits)
    return min(float(hits.sum() / targets.sum()), *(rate_low(sizes, each, total, tail) for each in correlations))


def _high(targets: Floats, hits: Floats, tail: float) -> float:
    sizes, total, correlations = _law(targets, hits)
    return max(float(hits.sum() / targets.sum()), *(rate_high(sizes, each, total, tail) for each in correlations))


def _law(targets: Floats, hits: Floats) -> tuple[tuple[int, ...], float, tuple[float, ...]]:
    """Whole sizes of the clusters, the total of hits in them at the same share, and the correlations to hold for."""
    sizes = np.sort(np.maximum(np.floor(targets[targets > 0] + 1e-9), 1).astype(np.int64))
    total = round(float(hits.sum() / targets.sum()) * int(sizes.sum()), 9)
    return tuple(sizes.tolist()), total, (CORRELATION, 1.0) if _all_or_nothing(targets, hits) else (CORRELATION,)


def _all_or_nothing(targets: Floats, hits: Floats) -> bool:
    """Whether every cluster was hit wholly or not at all, and both occur."""
    none, every = np.abs(hits) <= _ROUNDOFF, np.abs(hits - targets) <= _ROUNDOFF * (1 + 1e3 * targets)
    some = targets > 0
    return bool((none | every)[some].all() and none[some].any() and (every & ~none)[some].any())


def _joint(first: float, second: float, dependent: float) -> float:
    return math.sqrt(first**2 + second**2 + 2 * dependent * first * second)


def ratio_low(a: float, a_low: float, b: float, b_high: float) -> float:
    """Lower limit R of a / b, both positive quantities with limits (Donner and Zou 2012).

    It solves (a - R b)^2 = (a - a_low)^2 + R^2 (b_high - b)^2.
    """
    inner = (a * b) ** 2 - a_low * b_high * (2 * a - a_low) * (2 * b - b_high)
    return a_low * (2 * a - a_low) / (a * b + math.sqrt(max(inner, 0.0))) if a_low > 0 else 0.0


def ratio_high(a: float, a_high: float, b: float, b_low: float) -> float:
    """The upper limit: the same equation with the other ends."""
    inner = (a * b) ** 2 - a_high * b_low * (2 * a - a_high) * (2 * b - b_low)
    return (a * b + math.sqrt(max(inner, 0.0))) / (b_low * (2 * b - b_low)) if b_low > 1e-12 else math.inf
