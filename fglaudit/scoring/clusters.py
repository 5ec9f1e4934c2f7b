"""What an attack and its control reached in every cluster of targets, and what an interval is.

A cluster is one client of one partition and training. Its targets share the client's graph, its model and its luck, so
they are not independent; clusters are. Where each client in turn observes, the cluster is that client, or the client
whose nodes are asked about (:mod:`.score` takes the wider interval). The same client under a newly drawn partition and
training is a new cluster, under the same partition it is not. Targets weigh equally, clusters by their targets: the
value of a finding is the mean over targets, and an interval is of nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.finding import CLUSTER_COLUMNS, RANKED_COLUMNS
from fglaudit.quantities.base import UNINFORMATIVE
from fglaudit.quantities.negatives import Negatives

Floats = NDArray[np.float64]

MIN_CLUSTERS = 5
"""Below this there is no interval, only the range over the clusters."""
TOO_FEW = "too few parties"
TAIL = 0.025
"""Probability of each tail of a 95 % interval."""
_SLACK = 1e-6
"""By how much rounding may carry a value beyond its scale."""


@dataclass(frozen=True)
class Interval:
    """A figure and how sure it is.

    Attributes:
        value: the figure itself; None where there is none to give (no targets, or an uninformative control).
        low, high: its limits; of a range, the smallest and the largest of any cluster.
        kind: "beta-binomial", "cluster jackknife", "range" (read it as ``TOO_FEW``) or "" (no value).
        clusters: how many it rests on.
    """

    value: float | None
    low: float | None
    high: float | None
    kind: str
    clusters: int

    @property
    def shown(self) -> bool:
        """Whether the limits are those of an interval, which alone can show that something leaks or is held."""
        return self.kind not in ("", "range")


NOTHING = Interval(None, None, None, "", 0)


@dataclass(frozen=True)
class PairedClusters:
    """Sums over the targets of every cluster; all fields [C], values of a target in [0, 1].

    Attributes:
        targets: number of targets.
        control: sum of the control's values.
        gained: sum over targets of how much the attack's value is above the control's, where it is.
        lost: the same of how much it is below.
        against: of rankings, whose targets are positives, what the negatives of every cluster weigh (in positives), and
            by how much they move the sums of control, gained and lost [C, 4]; clusters may hold negatives alone. None:
            there are none.
        uninformative: a mean of the control from which on there is nothing left to show.
        trainings: of several trainings pooled, which one each cluster is of [C]; None: all are of one.
    """

    targets: Floats
    control: Floats
    gained: Floats
    lost: Floats
    against: Floats | None = field(default=None, kw_only=True)
    uninformative: float = field(default=UNINFORMATIVE, kw_only=True)
    trainings: Floats | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if len({len(self.targets), len(self.control), len(self.gained), len(self.lost)}) > 1:
            raise FglauditError("every cluster needs targets, control, gained and lost; the four differ in length")
        slack = _SLACK * np.maximum(self.targets, 1)
        beyond = (self.control > self.targets + slack) | (self.gained > self.targets - self.control + slack)
        below = (np.minimum(self.control, np.minimum(self.gained, self.lost)) < -slack) | (
            self.lost > self.control + slack
        )
        if bool(np.any(beyond | below)):
            worst = int(np.flatnonzero(beyond | below)[0])
            raise FglauditError(
                f"values of targets must lie in [0, 1]; cluster {worst} has {self.targets[worst]:g} targets, control"
                f" {self.control[worst]:g}, gained {self.gained[worst]:g}, lost {self.lost[worst]:g}; rescale the score"
            )

    @staticmethod
    def of(
        clusters: Tensor,
        values: Tensor,
        controls: Tensor,
        *,
        negatives: tuple[Negatives, Negatives] | None = None,
        uninformative: float = UNINFORMATIVE,
    ) -> PairedClusters:
        """Return the clusters of :func:`cluster_rows` that hold anything."""
        rows = cluster_rows(clusters, values, controls, negatives=negatives)
        return PairedClusters.from_rows(rows, uninformative=uninformative)

    @staticmethod
    def from_rows(rows: Sequence[Sequence[float]], *, uninformative: float = UNINFORMATIVE) -> PairedClusters:
        """Return the clusters of :func:`cluster_rows`; those without targets and negatives are left out.

        Raises:
            FglauditError: a row of another length, as older versions wrote them, or values that cannot be.
        """
        if odd := next((row for row in rows if len(row) not in (CLUSTER_COLUMNS, RANKED_COLUMNS)), None):
            raise FglauditError(
                "a cluster has targets, control, gained and lost, in rankings four more of its negatives; got"
                f" {len(odd)} numbers; run the cell again"
            )
        ranked = any(len(row) == RANKED_COLUMNS for row in rows)
        wide = [[*row, *[0.0] * (RANKED_COLUMNS - len(row))] for row in rows] if ranked else rows
        table = np.array(wide, dtype=np.float64).reshape(-1, RANKED_COLUMNS if ranked else CLUSTER_COLUMNS)
        if not bool(np.isfinite(table).all()):
            raise FglauditError("values of targets must be finite numbers; an attack or its control returned others")
        table = table[_holding(table)]
        others = table[:, 4:] if ranked else None
        return PairedClusters(*table[:, :4].T, against=others, uninformative=uninformative)

    @staticmethod
    def pool(
        parts: Sequence[Sequence[Sequence[float]]],
        partitions: Sequence[str],
        *,
        uninformative: float = UNINFORMATIVE,
    ) -> PairedClusters | None:
        """Put the clusters of several trainings together.

        A client under a newly drawn partition and training is a new cluster, under the same partition it is not: then
        its sums are added up.

        Args:
            parts: one per training, its :func:`cluster_rows`: the same client at the same place of all that share a
                partition, whether it was asked about or not.
            partitions: what tells equal partitions from others, one per training.

        Returns:
            None where a partition recurs and its clusters cannot be told apart, their numbers being different, or where
            some of several rankings lack their negatives.
        """
        drawn: dict[str, list[Floats]] = {}
        for part, partition in zip(parts, partitions, strict=True):
            drawn.setdefault(partition, []).append(np.array(part, dtype=np.float64))
        tables = [table for same in drawn.values() for table in same]
        if any(len({len(table) for table in same}) > 1 for same in drawn.values()):
            return None
        if len({table.shape[1] for table in tables}) > 1:
            return None
        summed = [np.sum(same, axis=0) for same in drawn.values()]
        pooled = PairedClusters.from_rows(np.concatenate(summed).tolist(), uninformative=uninformative)
        asked = [int(_holding(table).sum()) for table in summed]
        return replace(pooled, trainings=np.repeat(np.arange(float(len(summed))), asked))

    def rows(self) -> list[list[float]]:
        """Return [targets, control, gained, lost] per cluster; of rankings also ``against``."""
        columns = np.stack([self.targets, self.control, self.gained, self.lost], 1)
        columns = columns if self.against is None else np.concatenate([columns, self.against], 1)
        return [[float(entry) for entry in row] for row in columns]

    @property
    def count(self) -> int:
        """How many clusters there are; of rankings, of positives or of negatives, whichever are fewer."""
        held = int((self.targets > 0).sum())
        return held if self.against is None else min(held, int((self.against[:, 0] > 0).sum()))

    @property
    def sizes(self) -> Floats:
        """What every cluster weighs [C]: its targets, in rankings the mean of both sides."""
        return self.targets if self.against is None else (self.targets + self.against[:, 0]) / 2

    def of_targets(self) -> PairedClusters:
        """Return the clusters that hold targets, without negatives."""
        if self.against is None:
            return self
        rows = [row[:CLUSTER_COLUMNS] for row in self.rows()]
        return PairedClusters.from_rows(rows, uninformative=self.uninformative)

    @property
    def values(self) -> Floats:
        """Sums of the attack's values [C]."""
        return self.control + self.gained - self.lost

    @property
    def room(self) -> Floats:
        """What the control leaves to be gained [C]."""
        return self.targets - self.control

    @property
    def control_rate(self) -> float:
        return float(self.control.sum() / self.targets.sum())

    @property
    def informative(self) -> bool:
        return len(self.targets) > 0 and self.control_rate < self.uninformative

    @property
    def advantage(self) -> float:
        """``(value - control) / (1 - control)`` over all targets, not clipped."""
        return float((self.gained - self.lost).sum() / self.room.sum())

    @property
    def each(self) -> Floats:
        """The advantage in every cluster whose control leaves room [at most C]."""
        open_to = self.room > 0
        return (self.gained - self.lost)[open_to] / self.room[open_to]

    @property
    def worst(self) -> float | None:
        """The largest advantage in any cluster; None where there is nothing to show."""
        return float(self.each.max()) if self.informative else None

    def range(self) -> Interval:
        """The advantage with its smallest and largest in any cluster whose control leaves room."""
        if not self.informative:
            return NOTHING
        each, value = self.each, self.advantage
        return Interval(value, min(value, each.min().item()), max(value, each.max().item()), "range", self.count)


def cluster_rows(
    clusters: Tensor,
    values: Tensor,
    controls: Tensor,
    *,
    negatives: tuple[Negatives, Negatives] | None = None,
    least: int = 0,
) -> list[list[float]]:
    """Return the sums over the targets of every cluster, for a record: targets, control, gained, lost, and of rankings
    ``PairedClusters.against``. Cluster k stands at place k; one that nothing was asked of has zeros.

    Args:
        clusters: of the targets [T], counted from 0.
        values, controls: in [0, 1], of the attack and its control [T].
        negatives: of the attack's rankings and of its control's, if the targets are positives of rankings.
        least: how many rows there are at the least.
    """
    values, controls = values.cpu().double(), controls.cpu().double()
    for name, part in (("attack", values), ("control", controls)):
        off = part[~((part >= -_SLACK) & (part <= 1 + _SLACK))]
        if len(off):
            raise FglauditError(
                f"values of targets must be finite and lie in [0, 1]; the {name} has {off[0].item():g}; rescale the"
                " score"
            )
    places = clusters.cpu() if negatives is None else torch.cat([clusters, negatives[0].clusters]).cpu()
    count = max(least, int(places.max().item()) + 1 if len(places) else 0)
    sums = torch.zeros(count, 4, dtype=torch.double)
    sums.index_add_(0, places[: len(values)], torch.stack(_parts(values, controls), 1))
    if negatives is not None:
        found, control = negatives
        weight, *parts = _parts(found.values.cpu().double(), control.values.cpu().double())
        columns = torch.stack([weight * found.weights, *(found.moved(part) for part in parts)], 1)
        other = torch.zeros(count, 4, dtype=torch.double).index_add_(0, places[len(values) :], columns)
        sums = torch.cat([sums, other], 1)
    rows: list[list[float]] = sums.tolist()
    return rows


def _holding(table: Floats) -> NDArray[np.bool_]:
    """Return which clusters of a table of :func:`cluster_rows` hold targets or negatives [C]."""
    held: NDArray[np.bool_] = table[:, 0] > 0
    return held if table.shape[1] == CLUSTER_COLUMNS else held | (table[:, CLUSTER_COLUMNS] > 0)


def _parts(values: Tensor, controls: Tensor) -> list[Tensor]:
    """Return per target: one, the control's value, what was gained on it and what was lost."""
    moved = values - controls
    return [torch.ones_like(values), controls, moved.clamp(min=0), (-moved).clamp(min=0)]
