"""Epsilon against the closed form of the Gaussian mechanism."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from scipy.stats import norm

from fglaudit.accounting import accounted_noise_multiplier, compose, epsilon_of, gaussian_event, gaussian_noise_multiplier
from fglaudit.errors import FglauditError


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """Exact delta of one Gaussian mechanism with sensitivity 1 (Balle and Wang 2018, theorem 5)."""
    a, b = 1 / (2 * multiplier), epsilon * multiplier
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("releases", [1, 25])
def test_calibration_meets_its_budget_exactly(epsilon: float, releases: int) -> None:
    multiplier = gaussian_noise_multiplier(epsilon, 1e-5, releases)
    assert gaussian_delta(epsilon, multiplier / math.sqrt(releases)) == pytest.approx(1e-5, rel=1e-3)
    assert epsilon_of(gaussian_event(multiplier, releases), 1e-5, scale=epsilon) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.01, 8.0, 1000.0])
def test_what_is_accounted_stays_within_what_is_claimed(epsilon: float) -> None:
    multiplier, accounted = accounted_noise_multiplier(epsilon, 1e-5, 301)
    assert accounted == epsilon_of(gaussian_event(multiplier, 301), 1e-5, scale=epsilon)
    assert 0.99 * epsilon <= accounted <= epsilon


def test_more_releases_cost_more() -> None:
    once, often = (epsilon_of(gaussian_event(1.0, n), 1e-5) for n in (1, 10))
    assert often > 2 * once


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(FglauditError, match="must"):
        gaussian_noise_multiplier(epsilon, delta)


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.GaussianDpEvent(2.0),
        dp_accounting.LaplaceDpEvent(5.0),
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0)),
    ],
    ids=["gaussian", "laplace", "subsampled"],
)
def test_composing_n_times_is_n_compositions(event: dp_accounting.DpEvent) -> None:
    one_by_one = epsilon_of(dp_accounting.ComposedDpEvent([event] * 3), 1e-5)
    assert epsilon_of(compose(event, 3), 1e-5) == pytest.approx(one_by_one, rel=1e-6)
    assert epsilon_of(compose(event, 1), 1e-5) == pytest.approx(epsilon_of(event, 1e-5), rel=1e-9)
    assert one_by_one > epsilon_of(compose(event, 2), 1e-5)


def test_nothing_is_composed_no_times() -> None:
    with pytest.raises(FglauditError, match="at least once"):
        compose(dp_accounting.GaussianDpEvent(1.0), 0)
