"""Intervals. Targets of one client are not independent, so clients (x seeds) are what is resampled."""

from __future__ import annotations

import torch
from scipy.stats import beta
from torch import Tensor

MIN_CLUSTERS = 5
"""Below this a bootstrap means little; the range over clusters is given instead."""
UNINFORMATIVE = 0.99
"""A control this good leaves no room for an attack to show anything."""


def advantage(value: float, control: float) -> float | None:
    """Return ``(value - control) / (1 - control)``, not clipped; None where the control is uninformative."""
    return None if control >= UNINFORMATIVE else (value - control) / (1 - control)


def advantage_interval(
    clusters: Tensor, rng: torch.Generator, *, resamples: int = 2000, level: float = 0.95
) -> tuple[float | None, float | None, float | None, str]:
    """Return (advantage, low, high, kind) from clusters [C, 3]: number of targets, sum of values, sum of control
    values.

    ``kind`` is "bootstrap" (percentile bootstrap over clusters) or, below five clusters, "range" over the clusters.
    Where no target (or every target) was hit the bootstrap has no spread although the targets are few: the interval is
    then widened to the Clopper-Pearson limits of the pooled count, so that "0 of 20" never reads as "certainly 0".
    """
    clusters = clusters.double()
    clusters = clusters[clusters[:, 0] > 0]
    if len(clusters) == 0:
        return None, None, None, ""
    targets, values, controls = clusters.sum(0).tolist()
    point = advantage(values / targets, controls / targets)
    if point is None:
        return None, None, None, ""
    if len(clusters) < MIN_CLUSTERS:
        spread = (clusters[:, 1] - clusters[:, 2]) / (clusters[:, 0] - clusters[:, 2]).clamp(min=1e-9)
        low, high, kind = float(spread.min().item()), float(spread.max().item()), "range"
    else:
        draws = torch.randint(len(clusters), (resamples, len(clusters)), generator=rng)
        n, v, c = clusters[draws].sum(1).unbind(1)
        spread = (v - c) / (n - c).clamp(min=1e-9)
        tail = (1 - level) / 2
        low, high = torch.quantile(spread, torch.tensor([tail, 1 - tail], dtype=torch.double)).tolist()
        kind = "bootstrap"
    control = controls / targets
    if values == 0:
        high = max(high, (float(beta.ppf((1 + level) / 2, 1, targets)) - control) / (1 - control))
    if values == targets:
        low = min(low, (float(beta.ppf((1 - level) / 2, targets, 1)) - control) / (1 - control))
    return point, min(low, point), max(high, point), kind
