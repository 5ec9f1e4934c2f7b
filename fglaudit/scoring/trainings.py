"""Do the clients of one training do well or badly together? Then trainings are the clusters.

One model, one draw of the noise or one lucky guess may serve all clients of a training. Intervals over clients take
them for independent and are then too short, however many clients there are. Several trainings tell: if the advantage
varies more between trainings than its variation within them explains (F-test), the limits are the wider of those over
clients and those over trainings, which are then the clusters of a jackknife (:mod:`.scores`), be they as few as two.
The test is wrong in 5 % of the runs in which clients are independent, and then makes limits wider, never shorter.

Of one training nobody can tell.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.stats import f as fisher

from fglaudit.scoring.clusters import Floats, Interval, PairedClusters
from fglaudit.scoring.scores import both_sides, score_limits

LEVEL = 0.05
"""Of the test that trainings differ."""


def over_trainings(paired: PairedClusters, tail: float) -> tuple[float, float] | None:
    """Return limits over trainings, each with probability ``tail``; None where clients alone are the clusters."""
    if paired.trainings is None or not paired.informative or not _differ(paired, paired.trainings):
        return None
    whole = _summed(paired, paired.trainings)
    low, high = score_limits(whole, tail)
    least = -whole.control_rate / (1 - whole.control_rate)  # the advantage of an attack that gets nothing right
    return max(low, least), high


def widened(interval: Interval, paired: PairedClusters, tail: float) -> Interval:
    """Return ``interval``, which is over clients, with the limits over trainings where these lie further out."""
    limits = over_trainings(paired, tail) if interval.shown else None
    if limits is None or interval.low is None or interval.high is None:
        return interval
    return dataclasses.replace(interval, low=min(interval.low, limits[0]), high=max(interval.high, limits[1]))


def _differ(paired: PairedClusters, trainings: Floats) -> bool:
    """Whether clusters of one training move the advantage together, by an analysis of variance of what each moves."""
    _, index, counts = np.unique(trainings, return_inverse=True, return_counts=True)
    between, within = len(counts) - 1, len(index) - len(counts)
    if between < 1 or within < 1:
        return False
    gained, lost, room = both_sides(paired)
    moved = gained - lost - paired.advantage * room  # sums to 0
    explained = float((np.bincount(index, moved) ** 2 / counts).sum())
    left = float((moved**2).sum()) - explained
    if explained <= 1e-12 * float(paired.targets.sum()):
        return False
    return left <= 0 or float(fisher.sf(explained / between / (left / within), between, within)) < LEVEL


def _summed(paired: PairedClusters, trainings: Floats) -> PairedClusters:
    """Return one cluster per training."""
    _, index = np.unique(trainings, return_inverse=True)
    rows = np.array(paired.rows())
    table = np.zeros((int(index.max()) + 1, rows.shape[1]))
    np.add.at(table, index, rows)
    return PairedClusters.from_rows(table.tolist(), uninformative=paired.uninformative)
