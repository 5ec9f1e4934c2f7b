"""Critical values of a weighted mean over clusters in units of its jackknife standard error.

Of equal clusters that is Student's t with one degree of freedom less than there are clusters. Where few clusters hold
most targets, the standard error rests on these few, and t with that many degrees of freedom is too short. Here the law
is worked out for the weights at hand: with normal cluster means y and weights w (that sum to 1), the event
``|w'y| > q se`` says that a quadratic form of y is positive, and its probability is an integral over the form's
eigenvalues (Imhof 1961). Cluster means may vary alike (targets of a cluster are much alike) or inversely to their
number of targets (targets are independent); the larger critical value of the two is taken.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

from fglaudit.scoring.clusters import Floats

MOST_EXACT = 100
"""Clusters up to which the integral is done; above, t with the degrees of freedom of the same quadratic form."""
_POINTS = 2000
_ANGLES = (np.arange(_POINTS) + 0.5) * math.pi / 2 / _POINTS
_NODES = np.tan(_ANGLES)
_WEIGHTS = (1 + _NODES**2) * (math.pi / 2 / _POINTS)


def critical_value(sizes: Floats, tail: float) -> float:
    """Return q such that ``mean +- q se`` misses on each side with probability ``tail``.

    Args:
        sizes: the clusters' weights, in any unit [C]; C at least 2.
    """
    return _critical_value(tuple((np.sort(sizes) / sizes.sum()).round(9).tolist()), tail)


@lru_cache(maxsize=4096)
def _critical_value(shares: tuple[float, ...], tail: float) -> float:
    weights = np.array(shares) / sum(shares)
    if np.ptp(weights) < 1e-6 / len(weights):
        return float(student.ppf(1 - tail, len(weights) - 1))
    if len(weights) > MOST_EXACT:
        return float(student.ppf(1 - tail, degrees_of_freedom(weights)))
    return max(_exact(weights, np.ones_like(weights), tail), _exact(weights, weights.min() / weights, tail))


def _exact(weights: Floats, variances: Floats, tail: float) -> float:
    """Critical value where the cluster means have ``variances`` [C]."""
    deviations = np.eye(len(weights)) - weights  # row c: y_c - mean, as a function of y
    leverage = weights / (1 - weights)  # leaving cluster c out moves the mean by leverage times that
    squared_error = (deviations.T * leverage**2) @ deviations * (len(weights) - 1) / len(weights)
    spread = np.sqrt(np.outer(variances, variances))

    def exceeds(q: float) -> float:
        form = (np.outer(weights, weights) - q**2 * squared_error) * spread
        return _positive(np.linalg.eigvalsh(form).astype(np.float64)) - 2 * tail

    highest = 10.0
    while exceeds(highest) > 0:
        highest *= 10
    return float(brentq(exceeds, 0.0, highest, xtol=1e-6))


def _positive(eigenvalues: Floats) -> float:
    """Probability that a quadratic form of independent standard normal variables is positive."""
    scaled = eigenvalues[:, None] / np.abs(eigenvalues).max() * _NODES
    angle = np.arctan(scaled).sum(0) / 2
    modulus = np.exp(np.log1p(scaled**2).sum(0) / 4)
    return 0.5 + float((np.sin(angle) / (_NODES * modulus) * _WEIGHTS).sum()) / math.pi


def degrees_of_freedom(weights: Floats) -> float:
    """Satterthwaite's degrees of freedom of the squared jackknife error of cluster means that vary alike."""
    square = float((weights**2).sum())
    d = (weights / (1 - weights)) ** 2
    own = 1 - 2 * weights + square
    total, first, second = float(d.sum()), float((d * weights).sum()), float((d * weights**2).sum())
    off = square**2 * total**2 + 2 * total * second + 2 * first**2 - 4 * square * total * first
    trace_of_square = off + float((d**2 * (own**2 - (own - 1) ** 2)).sum())
    return float((d * own).sum()) ** 2 / trace_of_square
