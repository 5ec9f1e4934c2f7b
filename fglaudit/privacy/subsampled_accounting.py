"""Epsilon of Gaussian mechanisms on random samples, by Renyi differential privacy; calibration of their noise.

* A fixed number of m of n records, drawn without replacement: Wang, Balle and Kasiviswanathan (AISTATS 2019, theorem
  27), as dp-accounting has it, for a record *replaced* by another. For records added or removed there is no accountant
  for such samples.
* Poisson samples of losses of which one record changes up to M: each loss is in the sample with probability q, so a
  record changes ``i ~ Binomial(M, q)`` of those drawn. The Renyi divergence's exponential is jointly convex, so a step
  has ``exp((a - 1) eps) <= E_i exp((a - 1) a (i / M)^2 / (2 z^2))`` at order a, z being the noise per unit of the
  sensitivity of all M losses (Daigavane et al. 2021 have this for samples of fixed size). It is what an adversary who
  knows the sample would be held to, and so weaker than the amplification known for M = 1 with records added or removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from dp_accounting import rdp
from scipy.special import logsumexp
from scipy.stats import binom

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import (
    VANISHING_EPSILON,
    Relation,
    check_budget,
    compose,
    epsilon_of,
    event_of,
    fixed_size_sampled,
)

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 65), 96, 128, 256)
_HALVINGS = 40


@lru_cache(maxsize=256)  # audits bind a defense hundreds of times, and a bind asks a dozen times, for seconds
def fixed_sample_epsilon(multiplier: float, sample: int, population: int, releases: int, delta: float) -> float:
    """Return the epsilon of ``releases`` Gaussian mechanisms on ``sample`` of ``population`` records, one replaced.

    Args:
        multiplier: noise std per clip.

    Raises:
        FglauditError: unless 1 <= sample <= population.
    """
    event = event_of("gaussian", multiplier)
    sampled = compose(fixed_size_sampled(event, sample, population), releases)
    # For large samples the theorem gives more than the mechanism on all records, which is a bound as well.
    return min(epsilon_of(part, delta, Relation.REPLACE) for part in (sampled, compose(event, releases)))


def poisson_losses_epsilon(multiplier: float, rate: float, losses: int, releases: int, delta: float) -> float:
    """Return the epsilon of noisy sums of losses drawn with probability ``rate``; a record changes ``losses`` of them.

    Args:
        multiplier: noise std per unit of the sensitivity to a record all of whose losses are drawn.

    Raises:
        FglauditError: unless 0 < rate <= 1 and losses >= 1.
    """
    if not 0 < rate <= 1:
        raise FglauditError(f"a sampling rate is a probability in (0, 1]; got {rate:g}; use 1 for all")
    if losses < 1:
        raise FglauditError(f"a record changes at least 1 loss; got {losses}; raise it")
    drawn = np.arange(losses + 1)
    chance = binom.logpmf(drawn, losses, rate)
    orders = np.array(ORDERS)
    loss = np.outer(orders * (orders - 1), (drawn / losses) ** 2 / (2 * multiplier**2))
    divergence = logsumexp(loss + chance, axis=1) / (orders - 1)
    epsilon, _ = rdp.compute_epsilon(orders, releases * divergence, delta)
    return float(epsilon)


def smallest_multiplier(epsilon_of: Callable[[float], float], epsilon: float, delta: float) -> tuple[float, float]:
    """Return a noise multiplier with ``epsilon_of`` it at most ``epsilon``, nearly the smallest, and that epsilon.

    Raises:
        FglauditError: see :func:`fglaudit.privacy.accounting.check_budget`; or if the accountant never gets there.
    """
    check_budget(epsilon, delta, most=VANISHING_EPSILON)
    low, high = 0.0, 1.0
    while epsilon_of(high) > epsilon:
        low, high = high, 2 * high
        if high > 2.0**_HALVINGS:
            raise FglauditError(
                f"epsilon {epsilon:g} at delta {delta:g} is below what this accountant resolves; use a larger epsilon"
            )
    while high - low > 3e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of(middle) <= epsilon else (middle, high)
    return high, epsilon_of(high)
