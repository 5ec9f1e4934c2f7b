"""The interval of a rate by itself, with the limits that the parts of an advantage have: its coverage is measured."""

from __future__ import annotations

from fglaudit.scoring.clusters import MIN_CLUSTERS, NOTHING, TAIL, Floats, Interval
from fglaudit.scoring.rates import rate_limits


def rate_interval(targets: Floats, hits: Floats, *, tail: float = TAIL) -> Interval:
    """Return the share of all targets that were hit, with limits that each have probability ``tail``.

    Args:
        targets, hits: per cluster [C]; hits may be sums of values in [0, 1].
    """
    targets, hits = targets[targets > 0], hits[targets > 0]
    if len(targets) == 0:
        return NOTHING
    value, each = float(hits.sum() / targets.sum()), hits / targets
    if len(targets) < MIN_CLUSTERS:
        return Interval(value, each.min().item(), each.max().item(), "range", len(targets))
    return Interval(value, *rate_limits(targets, hits, tail), "beta-binomial", len(targets))
