"""Epsilon of a Gaussian mechanism from independent runs (Nasr et al., "Tight auditing of differentially private machine
learning", USENIX Security 2023, section 4; Gaussian differential privacy: Dong, Roth and Su 2022, definition 2.6 and
corollary 2.13).

A mechanism is mu-GDP if no test of level q has more hits than ``Phi(Phi^-1(q) + mu)``. So limits of the rates of hits p
and of false alarms q give ``mu >= Phi^-1(p) - Phi^-1(q)``, and every threshold is about as good as any other: far fewer
runs are needed than for the tail in which ``log(p / q)`` comes near epsilon.

What is shown: that the mechanism is not mu'-GDP for any mu' below. The epsilon is the exact one of the Gaussian
mechanism with that mu; it contradicts a stated epsilon if that epsilon was stated for a Gaussian mechanism (any number
of Gaussian releases composes to one), and is no bound on the epsilon of another mechanism.
"""

from __future__ import annotations

import dp_accounting
import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from fglaudit.empirical.bound import Bound, error_probability
from fglaudit.empirical.threshold_test import Array, Counts, count_test
from fglaudit.errors import FglauditError


def mu_bound(counts: Counts, error: float) -> Array:
    """Return the lower bound on mu, negative where nothing is shown, that holds but with probability ``error``."""
    low, high = counts.limits(error / 2, error / 2)
    return np.asarray(norm.ppf(low) - norm.ppf(high))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the exact epsilon at ``delta`` of the Gaussian mechanism with sensitivity ``mu`` standard deviations; 0 if
    that is negative.

    Raises:
        FglauditError: unless 0 < delta < 1.
    """
    if not 0 < delta < 1:
        raise FglauditError(
            f"a Gaussian mechanism has an epsilon only for delta in (0, 1); got {delta}; use e.g. 1.0e-5"
        )
    return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def gdp(
    present: Tensor, absent: Tensor, *, delta: float, confidence: float, rng: torch.Generator, tried: int = 1
) -> Bound:
    """Return a lower bound on the epsilon at ``delta`` of a mechanism that is said to be Gaussian.

    Args and errors: as of :func:`fglaudit.empirical.clopper_pearson.clopper_pearson`, with delta > 0.
    """
    error = error_probability(confidence, tried, delta)
    counts = count_test(present, absent, lambda c: mu_bound(c, error), rng)
    perfect = Counts(counts.hit_runs, counts.hit_runs, np.zeros(1), counts.alarm_runs)

    def at(total: float) -> float:
        return epsilon_of_mu(mu_bound(counts, total / tried).item(), delta)

    return Bound(
        epsilon=at(error * tried),
        delta=delta,
        confidence=confidence,
        method="gdp",
        trials=int(counts.hit_runs + counts.alarm_runs),
        ceiling=epsilon_of_mu(mu_bound(perfect, error).item(), delta),
        at=at,
    )
