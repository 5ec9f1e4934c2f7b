"""Intervals of scores that are no rates (AUC, cosine, F1 of rows): of an attack's advantage over its control.

The standard error is the cluster jackknife's, of the advantage as a whole, so that the control's own error and what the
two have in common are in it. Its critical value is exact for the sizes of the clusters (:mod:`.studentized`). Scores
near an end of their scale are skewed, and a symmetric interval then covers too little: the limits are also set on the
logit of the share that the attack gains of what its control leaves, with what it loses as it is, and each limit is the
outer of the two (the skew of a difference of two scores may be either way). ``python -m bench intervals`` measures the
coverage beside that of other methods: docs/intervals.md.

Where at least half of the clusters show no change at all, or cannot be better, their spread says nothing about what
further clusters would show. The limits are then the wider of these and those of a rate with the same means, which
varies more than any score in [0, 1].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from fglaudit.scoring.clusters import MIN_CLUSTERS, NOTHING, TAIL, Interval, PairedClusters
from fglaudit.scoring.rates import advantage_interval
from fglaudit.scoring.studentized import critical_value


def score_advantage_interval(paired: PairedClusters, *, tail: float = TAIL) -> Interval:
    """Return the advantage in a score in [0, 1] (map others onto it: an advantage stays what it was), with limits that
    each have probability ``tail``."""
    if not paired.informative:
        return NOTHING
    if len(paired.targets) < MIN_CLUSTERS:
        return paired.range()
    advantage, error = paired.advantage, jackknife_error(paired)
    gain, lost = (float(part.sum() / paired.room.sum()) for part in (paired.gained, paired.lost))
    reach = critical_value(paired.targets, tail) * error
    low, high = advantage - reach, min(advantage + reach, 1.0)
    if 0 < gain < 1 and math.isfinite(reach):
        stretch = reach / (gain * (1 - gain))
        low = min(low, float(expit(logit(gain) - stretch)) - lost)
        high = max(high, float(expit(logit(gain) + stretch)) - lost)
    if not _spread_is_informative(paired) or error == 0:
        as_rate = advantage_interval(paired, tail=tail)
        assert as_rate.low is not None and as_rate.high is not None
        low, high = min(low, as_rate.low), max(high, as_rate.high)
    return Interval(advantage, min(low, advantage), max(high, advantage), "cluster jackknife", len(paired.targets))


def jackknife_error(paired: PairedClusters) -> float:
    """Return the standard error of the advantage from leaving out every cluster in turn."""
    net, room = paired.gained - paired.lost, paired.room
    left = room.sum() - room
    if bool((left <= 0).any()):  # one cluster alone leaves room for an advantage
        return math.inf
    without = (net.sum() - net) / left
    return math.sqrt((len(net) - 1) / len(net) * float(((without - paired.advantage) ** 2).sum()))


def _spread_is_informative(paired: PairedClusters) -> bool:
    """Whether more than half of the clusters changed, and more than half could still be better."""
    unchanged = np.isclose(paired.gained, 0) & np.isclose(paired.lost, 0)
    perfect = np.isclose(paired.values, paired.targets)
    return max(int(unchanged.sum()), int(perfect.sum())) * 2 < len(paired.targets)
