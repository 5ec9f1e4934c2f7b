"""Intervals of scores that are no rates (AUC, cosine, F1 of rows): of an attack's advantage over its control.

The standard error is the cluster jackknife's, of the advantage as a whole, so that the control's own error and what the
two have in common are in it; of an AUC it is made of positives and negatives both (Obuchowski 1997). Its critical value
is exact for the sizes of the clusters (:mod:`.studentized`). Scores near an end of their scale are skewed, and a
symmetric interval then covers too little: the share that the attack gains of what its control leaves also gets limits
on the logit, what it loses gets symmetric ones, each by its own jackknife error, the two are put together with the
correlation that their errors have (MOVER, Zou and Donner 2008), and each limit is the outer of this and the symmetric
one (the skew of a difference of two scores may be either way). ``python -m bench intervals`` measures the coverage
beside that of other methods: docs/intervals.md.

Where at least half of the clusters show no change at all, or cannot be better, their spread says nothing about what
further clusters would show. The limits are then the wider of these and those of a rate with the same means, which
varies more than any score in [0, 1].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from fglaudit.scoring.clusters import MIN_CLUSTERS, NOTHING, TAIL, Floats, Interval, PairedClusters
from fglaudit.scoring.rates import advantage_interval
from fglaudit.scoring.studentized import critical_value

CONTROL, GAINED, LOST = 1, 2, 3
"""Columns of :attr:`PairedClusters.against`."""


def score_advantage_interval(paired: PairedClusters, *, tail: float = TAIL) -> Interval:
    """Return the advantage in a score in [0, 1] (map others onto it: an advantage stays what it was), with limits that
    each have probability ``tail``."""
    if not paired.informative:
        return NOTHING
    if paired.count < MIN_CLUSTERS:
        return paired.range()
    low, high = score_limits(paired, tail)
    return Interval(paired.advantage, low, high, "cluster jackknife", paired.count)


def score_limits(paired: PairedClusters, tail: float) -> tuple[float, float]:
    """Return the limits of :func:`score_advantage_interval`; of two clusters at least."""
    gained, lost, _ = both_sides(paired)
    advantage, error = paired.advantage, jackknife_error(paired, gained - lost)
    critical = critical_value(paired.sizes, tail)
    low, high = advantage - critical * error, min(advantage + critical * error, 1.0)
    gain = float(paired.gained.sum() / paired.room.sum())
    if 0 < gain < 1 and math.isfinite(error):
        of_gain, of_loss = (jackknife_error(paired, part) for part in (gained, lost))
        tie = (of_gain**2 + of_loss**2 - error**2) / (2 * of_gain * of_loss) if of_gain * of_loss > 0 else 0.0
        stretch = critical * of_gain / (gain * (1 - gain))
        below, above = (gain - float(expit(logit(gain) - stretch)), float(expit(logit(gain) + stretch)) - gain)
        low = min(low, advantage - _reach(below, critical * of_loss, tie))
        high = max(high, min(advantage + _reach(above, critical * of_loss, tie), 1.0))
    if not _spread_is_informative(paired) or error == 0:
        as_rate = advantage_interval(paired.of_targets(), tail=tail)
        assert as_rate.low is not None and as_rate.high is not None
        low, high = min(low, as_rate.low), max(high, as_rate.high)
    return min(low, advantage), max(high, advantage)


def both_sides(paired: PairedClusters) -> tuple[Floats, Floats, Floats]:
    """Return what every cluster gained, lost and left room for [C], in a ranking with what its negatives add."""
    if paired.against is None:
        return paired.gained, paired.lost, paired.room
    of = paired.against
    return paired.gained + of[:, GAINED], paired.lost + of[:, LOST], paired.room - of[:, CONTROL]


def _reach(of_gain: float, of_loss: float, tie: float) -> float:
    """Return how far a difference reaches whose parts reach so far and have the correlation ``tie``."""
    return math.sqrt(max(0.0, of_gain**2 + of_loss**2 - 2 * tie * of_gain * of_loss))


def jackknife_error(paired: PairedClusters, part: Floats) -> float:
    """Return the standard error, from leaving out every cluster in turn, of the share of what the control leaves that
    ``part`` [C] makes up, a cluster's negatives with its targets; of the advantage where it is what is gained less what
    is lost."""
    _, _, room = both_sides(paired)
    left = room.sum() - room
    if bool((left <= 0).any()):  # one cluster alone leaves room for an advantage
        return math.inf
    without = (part.sum() - part) / left
    share = part.sum() / room.sum()
    return math.sqrt((len(part) - 1) / len(part) * float(((without - share) ** 2).sum()))


def _spread_is_informative(paired: PairedClusters) -> bool:
    """Whether more than half of the clusters changed, and more than half could still be better."""
    held = paired.of_targets()
    unchanged = np.isclose(held.gained, 0) & np.isclose(held.lost, 0)
    perfect = np.isclose(held.values, held.targets)
    return max(int(unchanged.sum()), int(perfect.sum())) * 2 < len(held.targets)
