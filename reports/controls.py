"""What a defense bought: its accuracy beside the best control whose epsilon is not larger (design, rule 13).

A control costs nothing: it sends no feature, or nothing at all (epsilon 0), or it is a cheaper private setting. The
accuracies that are compared come from the same seeds, so from the same partitions, and are paired on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """A setting on one data set.

    Attributes:
        name: for tables.
        accuracy: over the whole test set, by seed.
        epsilon: that it spends on a node's features; 0 where none is sent, infinite in the clear.
        control: whether it is one that others are measured against.
    """

    name: str
    accuracy: Mapping[int, float]
    epsilon: float
    control: bool = False

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
        low, high: its 95 % interval over seeds by Student's t; both are ``gain`` from one seed, which shows nothing.
        seeds: how many were common.
    """

    control: str
    gain: float
    low: float
    high: float
    seeds: int

    @property
    def words(self) -> str:
        """What a table says."""
        figure = f"{100 * self.gain:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f}) over {self.control}"
        if self.seeds < 2:
            return f"{100 * self.gain:+.1f} over {self.control}, one seed"
        return figure if self.low > 0 else f"{figure}: nothing"


def chance_level(y: Tensor, test: Tensor) -> float:
    """Return the accuracy of always answering the most frequent class of the test nodes; ``y``, mask ``test`` [N]."""
    return float(torch.bincount(y[test]).max().item()) / int(test.sum().item())


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
    if len(gains) < 2:
        return Bought(control.name, mean, mean, mean, len(gains))
    spread = math.sqrt(math.fsum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * spread
    return Bought(control.name, mean, mean - reach, mean + reach, len(gains))


def _mean_on(control: Measured, setting: Measured) -> float:
    seeds = control.accuracy.keys() & setting.accuracy.keys()
    return math.fsum(control.accuracy[seed] for seed in seeds) / len(seeds)
