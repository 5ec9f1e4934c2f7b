"""Epsilon from independent runs of a distinguishing test (Jagielski, Ullman and Oprea, "Auditing differentially private
machine learning", NeurIPS 2020, section 3; Nasr et al., "Adversary instantiation", S&P 2021, section III).

If a mechanism is (epsilon, delta)-private, every test has ``P[yes | D] <= e^epsilon P[yes | D'] + delta``. Run it often
on both data sets, bound the rate of hits p from below and of false alarms q from above:
``epsilon >= log((p - delta) / q)``. The runs must be independent, with one canary each; many canaries in one run are
for ``one_run``. Nothing is assumed of the mechanism.

Choices where the papers are silent: the bound of the false alarms takes four fifths of the error probability, because
the bound moves with their relative error; the threshold comes from a separate part of the runs (``threshold_test``).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound
from fglaudit.empirical.estimates.threshold_test import Array, Counts, bound_from_runs

ALARM_SHARE = 0.8


def epsilon_bound(counts: Counts, delta: float, error: float) -> Array:
    """Return the lower bound on epsilon, negative where nothing is shown, that holds but with probability ``error``."""
    low, high = counts.limits((1 - ALARM_SHARE) * error, ALARM_SHARE * error)
    return np.log(np.maximum(low - delta, np.finfo(np.float64).tiny) / high)


def clopper_pearson(
    present: Tensor, absent: Tensor, *, delta: float, confidence: float, rng: torch.Generator, tried: int = 1
) -> Bound:
    """Return a lower bound on epsilon at ``delta``.

    Args:
        present, absent: scores of independent runs with the canary [n1] and without it [n0].
        confidence: of the bound, or of all of them where ``tried`` many are computed and the largest is reported.
        rng: separates the runs that choose the threshold from those that are counted.

    Raises:
        FglauditError: see :func:`fglaudit.empirical.estimates.threshold_test.bound_from_runs`.
    """
    return bound_from_runs(
        present,
        absent,
        lambda counts, error: epsilon_bound(counts, delta, error),
        lambda epsilon: max(epsilon, 0.0),
        method="clopper-pearson",
        delta=delta,
        confidence=confidence,
        rng=rng,
        tried=tried,
    )
