"""Which primary metrics are rates and which are scores: it decides on the interval of an attack's advantage.

A rate is a mean of hits and misses (exact rows, labels right, directions found): :mod:`.rates`. A score is any other
mean over targets (AUC per positive, cosine, F1 of rows, overlap of distributions): :mod:`.scores`. A cosine is mapped
from [-1, 1] to [0, 1], which leaves the advantage what it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fglaudit.quantities.base import UNINFORMATIVE
from fglaudit.quantities.negatives import Negatives
from fglaudit.scoring.clusters import TAIL, Interval, PairedClusters, cluster_rows
from fglaudit.scoring.rates import advantage_exceeds_zero, advantage_interval
from fglaudit.scoring.scores import score_advantage_interval
from fglaudit.scoring.trainings import over_trainings, widened

RATES = frozenset({"exact_rate", "matched_rate", "label_accuracy", "direction_rate", "tpr_at_fpr_1"})
SIGNED = frozenset({"cosine"})
"""Scores in [-1, 1]; all others lie in [0, 1]."""


def recorded_clusters(
    metric: str,
    clusters: Tensor,
    values: Tensor,
    controls: Tensor,
    negatives: tuple[Negatives, Negatives] | None = None,
    *,
    least: int = 0,
) -> list[list[float]]:
    """Return the sums of ``metric`` and of its control over the targets of every cluster, on the scale [0, 1]: what a
    record keeps, see :func:`fglaudit.scoring.clusters.cluster_rows`.

    Args:
        clusters: of the targets [V].
        values, controls: of the attack and of its control, per target [V], on the metric's own scale.
        negatives: of both, if the targets are positives of rankings.
        least: how many rows there are at the least.

    Raises:
        FglauditError: values that are not finite or not on this scale.
    """
    if metric in SIGNED:  # rounding may carry a cosine beyond 1
        values, controls = ((1 + part.double().clamp(-1, 1)) / 2 for part in (values, controls))
    return cluster_rows(clusters, values, controls, negatives=negatives, least=least)


def clusters_of(
    metric: str,
    clusters: Tensor,
    values: Tensor,
    controls: Tensor,
    negatives: tuple[Negatives, Negatives] | None = None,
) -> PairedClusters:
    """Return the clusters of :func:`recorded_clusters`."""
    return read_clusters(metric, recorded_clusters(metric, clusters, values, controls, negatives))


def read_clusters(metric: str, rows: Sequence[Sequence[float]]) -> PairedClusters:
    """Read back what a record keeps."""
    return PairedClusters.from_rows(rows, uninformative=_uninformative(metric))


def pooled_clusters(
    metric: str, parts: Sequence[Sequence[Sequence[float]]], partitions: Sequence[str]
) -> PairedClusters | None:
    """Put together what the records of several trainings keep, see :meth:`PairedClusters.pool`."""
    return PairedClusters.pool(parts, partitions, uninformative=_uninformative(metric))


def metric_interval(metric: str, paired: PairedClusters, *, tail: float = TAIL) -> Interval:
    """Return the advantage in ``metric``, with limits that each have probability ``tail``."""
    found = (advantage_interval if metric in RATES else score_advantage_interval)(paired, tail=tail)
    return widened(found, paired, tail)


def exceeds_zero(metric: str, paired: PairedClusters, *, tail: float = TAIL) -> bool:
    """Return whether the lower limit of :func:`metric_interval` lies above 0; a range has none."""
    if metric in RATES:
        if not advantage_exceeds_zero(paired, tail=tail):
            return False
        limits = over_trainings(paired, tail)
        return limits is None or limits[0] > 0
    found = metric_interval(metric, paired, tail=tail)
    return found.shown and found.low is not None and found.low > 0


def _uninformative(metric: str) -> float:
    return (1 + UNINFORMATIVE) / 2 if metric in SIGNED else UNINFORMATIVE
