"""What a defense bought: its accuracy beside the best control whose epsilon is not larger (rule 13).

A control costs nothing: it sends no feature, or nothing at all (epsilon 0), or it is a cheaper private setting. The
accuracies that are compared come from the same seeds, so from the same partitions, and are paired on them; where it is
known which test nodes either gets right, on these nodes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from fglaudit.reports.numbers import signed

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """A setting on one data set.

    Attributes:
        name: for tables.
        accuracy: over the whole test set, by seed.
        epsilon: that it spends on a node's features; 0 where none is sent, infinite in the clear.
        control: whether it is one that others are measured against.
        right: by seed, 1 or 0 for every test node, the same nodes in the same order for all settings; empty: not known.
    """

    name: str
    accuracy: Mapping[int, float]
    epsilon: float
    control: bool = False
    right: Mapping[int, Sequence[float]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return math.fsum(self.accuracy.values()) / len(self.accuracy)


@dataclass(frozen=True)
class Bought:
    """What a setting bought over a control.

    Attributes:
        control: its name.
        gain: mean difference of the accuracies over the common seeds.
        low, high: its 95 % interval: over seeds (Student's t) or over test nodes, whichever is wider; both are ``gain``
            from one seed of which no nodes are known, which shows nothing.
        seeds: how many were common.
    """

    control: str
    gain: float
    low: float
    high: float
    seeds: int

    @property
    def anything(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0 and self.low < self.gain

    @property
    def points(self) -> str:
        """The gain in points, with its interval where there is one."""
        interval = f" ({signed(100 * self.low)} to {signed(100 * self.high)})" if self.low != self.high else ""
        return f"{signed(100 * self.gain)}{interval}"

    @property
    def verdict(self) -> str:
        """``: nothing`` where the interval does not lie above 0; empty where it does, or where there is none."""
        return "" if self.anything or self.low == self.high else ": nothing"

    @property
    def words(self) -> str:
        """What a table says."""
        few = ", one seed" if self.seeds < 2 else ""
        return f"{self.points} over {self.control}{few}{self.verdict}"


def best_control(setting: Measured, others: Iterable[Measured]) -> Measured | None:
    """Return the control with the best mean over common seeds whose epsilon is not larger than that of ``setting``."""
    fitting = [
        other
        for other in others
        if other.control
        and other.name != setting.name
        and other.epsilon <= setting.epsilon
        and other.accuracy.keys() & setting.accuracy.keys()
    ]
    return max(fitting, key=lambda other: _mean_on(other, setting), default=None)


def bought(setting: Measured, others: Iterable[Measured]) -> Bought | None:
    """Return what ``setting`` bought over the :func:`best_control`; None where there is no control."""
    control = best_control(setting, others)
    if control is None:
        return None
    seeds = sorted(setting.accuracy.keys() & control.accuracy.keys())
    gains = [setting.accuracy[seed] - control.accuracy[seed] for seed in seeds]
    mean = math.fsum(gains) / len(gains)
    reach = max(_reach(gains), _reach(_by_node(setting, control, seeds)))
    return Bought(control.name, mean, mean - reach, mean + reach, len(gains))


def _by_node(setting: Measured, control: Measured, seeds: Sequence[int]) -> Sequence[float]:
    """Return, for every test node, the mean difference over ``seeds``; nothing where the nodes are not known or not the
    same number in every seed. Public splits have the same nodes in each; drawn ones are as if drawn from one graph."""
    answers = [np.asarray(one.right.get(seed, ()), dtype=float) for seed in seeds for one in (setting, control)]
    if len({len(each) for each in answers}) > 1:
        return ()
    gains: list[float] = np.mean(np.subtract(answers[::2], answers[1::2]), axis=0).tolist()
    return gains


def _reach(gains: Sequence[float]) -> float:
    """Return half the width of the interval of the mean of ``gains``, by Student's t; 0 from fewer than two."""
    if len(gains) < 2:
        return 0.0
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * float(stats.sem(gains))


def _mean_on(control: Measured, setting: Measured) -> float:
    seeds = control.accuracy.keys() & setting.accuracy.keys()
    return math.fsum(control.accuracy[seed] for seed in seeds) / len(seeds)
