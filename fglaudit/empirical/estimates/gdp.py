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

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound
from fglaudit.empirical.estimates.threshold_test import Array, Counts, bound_from_runs
from fglaudit.privacy.accounting import epsilon_of_mu


def mu_bound(counts: Counts, error: float) -> Array:
    """Return the lower bound on mu, negative where nothing is shown, that holds but with probability ``error``."""
    low, high = counts.limits(error / 2, error / 2)
    return np.asarray(norm.ppf(low) - norm.ppf(high))


def gdp(
    present: Tensor, absent: Tensor, *, delta: float, confidence: float, rng: torch.Generator, tried: int = 1
) -> Bound:
    """Return a lower bound on the epsilon at ``delta`` of a mechanism that is said to be Gaussian.

    ``present`` are [n1], ``absent`` [n0], delta > 0; otherwise as
    :func:`fglaudit.empirical.estimates.clopper_pearson.clopper_pearson`.
    """
    return bound_from_runs(
        present,
        absent,
        mu_bound,
        lambda mu: epsilon_of_mu(mu, delta),
        method="gdp",
        delta=delta,
        confidence=confidence,
        rng=rng,
        tried=tried,
    )
