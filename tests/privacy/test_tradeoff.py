"""Trade-off curves against closed forms and against all outcomes written out."""

from __future__ import annotations

import math
import warnings

import dp_accounting
import numpy as np
import pytest
from scipy.stats import binom, norm

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import Relation, compose, compose_all, event_of, poisson_sampled
from fglaudit.privacy.tradeoff import TradeOff, narrowed

ALPHA = np.array([0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.8, 1.0])


def test_gaussian_releases_compose_to_one() -> None:
    event = compose_all([compose(event_of("gaussian", 2.0), 3), event_of("gaussian", 1.0)])
    curve = TradeOff.of(event, Relation.REPLACE)
    assert curve.mu is not None and curve.mu == pytest.approx(math.sqrt(3 * (2 / 2) ** 2 + 2**2))
    assert np.allclose(curve.beta(ALPHA), norm.cdf(norm.ppf(1 - ALPHA) - curve.mu))
    assert curve.epsilon(1e-5) == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / curve.mu, 1e-5))


def test_one_laplace_release() -> None:
    epsilon = 1.2
    curve = TradeOff.of(event_of("laplace", 1 / epsilon), Relation.ZERO_OUT)
    alpha = ALPHA[1:-1]
    # Two Laplace distributions ``epsilon`` scales apart, guessed by a threshold.
    threshold = np.where(alpha < 0.5, -np.log(2 * alpha), np.log(2 * (1 - alpha)))
    exact = np.where(threshold < epsilon, 0.5 * np.exp(threshold - epsilon), 1 - 0.5 * np.exp(epsilon - threshold))
    found = curve.beta(alpha)
    assert (found <= exact + 1e-9).all() and np.allclose(found, exact, atol=2e-3)
    assert curve.pure == pytest.approx(epsilon)


def test_randomised_response_against_all_outcomes() -> None:
    bits, epsilon = 5, 1.5
    lie = 1 / (1 + math.exp(epsilon))
    event = compose(dp_accounting.RandomizedResponseDpEvent(2 * lie, 2), bits)
    curve = TradeOff.of(event, Relation.REPLACE)
    ones = np.arange(bits + 1)
    there, gone = binom.pmf(ones, bits, 1 - lie), binom.pmf(ones, bits, lie)
    # The best test says yes from the most ones downwards, at a corner of the exact curve for each.
    alarms, misses = np.cumsum(gone[::-1]), 1 - np.cumsum(there[::-1])
    found = curve.beta(alarms)
    assert (found <= misses + 1e-9).all() and np.allclose(found, misses, atol=5e-3)


def test_samples_hide_more() -> None:
    whole = TradeOff.of(event_of("gaussian", 1.0), Relation.ADD_OR_REMOVE)
    sampled = TradeOff.of(poisson_sampled(event_of("gaussian", 1.0), 0.2), Relation.ADD_OR_REMOVE)
    assert (sampled.beta(ALPHA[2:6]) > whole.beta(ALPHA[2:6]) + 0.01).all()
    assert sampled.epsilon(1e-5) < whole.epsilon(1e-5)


def test_points_bound_what_no_distribution_is_known_for() -> None:
    event = dp_accounting.SampledWithoutReplacementDpEvent(100, 20, dp_accounting.GaussianDpEvent(1.0))
    curve = TradeOff.of(event, Relation.REPLACE)
    assert curve.mu is None and 0 < curve.beta(np.array(0.1)) < 0.9
    assert curve.beta(np.array(0.1)) >= TradeOff.of(dp_accounting.GaussianDpEvent(0.5), Relation.REPLACE).beta(
        np.array(0.1)
    )


def test_less_noise_shows_more() -> None:
    event = compose_all([compose(event_of("laplace", 3.0), 4), event_of("laplace", 2.0)])
    stated, weaker = (TradeOff.of(e, Relation.REPLACE) for e in (event, narrowed(event, 1.5)))
    assert weaker.pure == pytest.approx(1.5 * stated.pure)
    assert (weaker.beta(ALPHA[2:6]) < stated.beta(ALPHA[2:6])).all()
    bit = narrowed(dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e), 2), 1.5)
    assert math.log((1 - bit.noise_parameter / 2) / (bit.noise_parameter / 2)) == pytest.approx(1.5)
    with pytest.raises(FglauditError, match="less noise"):
        narrowed(dp_accounting.UnsupportedDpEvent(), 1.5)


def test_an_epsilon_beyond_what_its_exponential_holds_is_a_number_and_no_warning() -> None:
    """At no false alarms an infinite factor times nothing was no number, and the curve with it."""
    curve = TradeOff(None, (900.0, 1000.0), (1e-5, 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert curve.beta(np.array([0.0, 0.5, 1.0])).tolist() == [1.0, 0.0, 0.0]
