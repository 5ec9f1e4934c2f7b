"""Epsilon against closed forms and brute-force integrals; composition; every neighbouring relation by name."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import DpEvent, pld
from scipy.stats import norm

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import (
    Relation,
    compose,
    compose_all,
    epsilon_of,
    event_of,
    fixed_size_sampled,
    noise_multiplier,
    poisson_sampled,
    response_event,
)

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
RESPONSE = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e), 2)  # flips a bit with probability 1 / (1 + e)


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """Exact delta of one Gaussian mechanism with sensitivity 1 (Balle and Wang 2018, theorem 5)."""
    a, b = 1 / (2 * multiplier), epsilon * multiplier
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


def integrated_delta(epsilon: float, present: np.ndarray, absent: np.ndarray, step: float) -> float:
    """Delta of one release by its definition, from both densities on a grid; the worse of the two orders."""
    factor = math.exp(epsilon)
    return float(
        step * max(np.maximum(present - factor * absent, 0).sum(), np.maximum(absent - factor * present, 0).sum())
    )


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "releases"), [(0.01, 1), (0.5, 25), (8.0, 301), (100.0, 3)])
def test_gaussian_calibration_meets_its_budget_exactly(epsilon: float, releases: int, relation: Relation) -> None:
    multiplier = noise_multiplier("gaussian", epsilon, 1e-5, relation, releases)
    one = multiplier / math.sqrt(releases) / (2 if relation is REPLACE else 1)  # noise per distance of the outputs
    assert gaussian_delta(epsilon, one) == pytest.approx(1e-5, rel=1e-3)
    accounted = epsilon_of(compose(event_of("gaussian", multiplier), releases), 1e-5, relation)
    assert 0.999999 * epsilon <= accounted <= epsilon


@pytest.mark.parametrize("releases", [1, 20, 200])
@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_laplace_calibration_meets_its_budget(releases: int, relation: Relation) -> None:
    multiplier = noise_multiplier("laplace", 2.0, 1e-5, relation, releases)
    event = compose(event_of("laplace", multiplier), releases)
    assert epsilon_of(event, 1e-5, relation) == pytest.approx(2.0, rel=1e-6)
    assert epsilon_of(event, 1e-5, relation) <= 2.0
    pure = noise_multiplier("laplace", 2.0, 0.0, relation, releases)
    assert pure == pytest.approx(relation.moves * releases / 2.0) and pure >= multiplier


def test_laplace_composition_is_an_upper_bound_a_few_per_cent_above_the_exact_one() -> None:
    assert epsilon_of(event_of("laplace", 2.0), 1e-5, ZERO_OUT) == 0.5  # one release: pure epsilon, 1 / multiplier
    assert epsilon_of(event_of("laplace", 2.0), 1e-5, REPLACE) == 1.0
    event = compose(event_of("laplace", 98.85), 200)
    grid = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    exact = grid.compose(event).get_epsilon(1e-5)
    assert exact <= epsilon_of(event, 1e-5, ZERO_OUT) <= 1.15 * exact < 0.5 * 200 / 98.85
    # The Gaussian approximation of many releases (variance 2 b^2 against sensitivity 1) must not be far off.
    many = noise_multiplier("laplace", 1.0, 1e-5, ZERO_OUT, 400)
    assert many * math.sqrt(2) == pytest.approx(
        noise_multiplier("gaussian", 1.0, 1e-5, ZERO_OUT, 400) * math.sqrt(2), rel=0.2
    )


def test_different_releases_compose() -> None:
    both = compose_all([compose(event_of("gaussian", 3.0), 20), event_of("laplace", 4.0)])
    parts = [
        epsilon_of(compose(event_of("gaussian", 3.0), 20), 1e-5, REPLACE),
        epsilon_of(event_of("laplace", 4.0), 1e-5, REPLACE),
    ]
    assert max(parts) < epsilon_of(both, 1e-5, REPLACE) < 1.1 * sum(parts)
    gaussians = compose_all([event_of("gaussian", 2.0), event_of("gaussian", 2.0)])
    assert epsilon_of(gaussians, 1e-5, ZERO_OUT) == pytest.approx(
        epsilon_of(event_of("gaussian", 2**0.5), 1e-5, ZERO_OUT)
    )
    pure = compose_all([event_of("laplace", 4.0), compose(RESPONSE, 3)])
    assert epsilon_of(pure, 0.0, REPLACE) == pytest.approx(2 / 4 + 3 * 1.0)
    assert epsilon_of(pure, 1e-5, REPLACE) <= 3.5
    assert epsilon_of(dp_accounting.NoOpDpEvent(), 1e-5, REPLACE) == 0


def test_a_sampled_release_against_its_integral() -> None:
    """Mixtures on a grid: a record of norm one (or its opposite) is in the batch with probability q."""
    q, sigma, delta = 0.2, 1.0, 1e-4
    grid, step = np.linspace(-12, 12, 400_001, retstep=True)
    without = norm.pdf(grid, 0, sigma)
    with_it, opposite = ((1 - q) * without + q * norm.pdf(grid, sign, sigma) for sign in (1, -1))
    event = poisson_sampled(event_of("gaussian", sigma), q)
    for relation, other in ((Relation.ADD_OR_REMOVE, without), (ZERO_OUT, without), (REPLACE, opposite)):
        epsilon = epsilon_of(event, delta, relation)
        assert integrated_delta(epsilon, with_it, other, float(step)) == pytest.approx(delta, rel=0.02)
    whole = epsilon_of(dp_accounting.PoissonSampledDpEvent(1.0, event_of("gaussian", sigma)), delta, REPLACE)
    assert whole == pytest.approx(epsilon_of(event_of("gaussian", sigma), delta, REPLACE), rel=1e-3)


def test_a_sample_of_all_records_is_no_sample() -> None:
    event = event_of("laplace", 2.0)
    assert epsilon_of(poisson_sampled(event, 1.0), 0.0, REPLACE) == epsilon_of(event, 0.0, REPLACE) == 1.0


def test_batches_of_fixed_size_are_judged_for_replaced_records_alone() -> None:
    """The bound lies between the exact epsilon of the worst pair (records far apart, the others at rest) and no
    sampling."""
    sigma, delta = 4.0, 1e-5
    event = fixed_size_sampled(event_of("gaussian", sigma), 20, 100)
    grid, step = np.linspace(-60, 60, 400_001, retstep=True)
    plus, minus = (0.8 * norm.pdf(grid, 0, sigma) + 0.2 * norm.pdf(grid, sign, sigma) for sign in (1, -1))
    bound = epsilon_of(event, delta, REPLACE)
    assert integrated_delta(bound, plus, minus, float(step)) < delta
    assert bound < epsilon_of(event_of("gaussian", sigma), delta, REPLACE)
    with pytest.raises(FglauditError, match=r"added or removed.*must be `REPLACE_ONE`"):
        epsilon_of(event, delta, Relation.ADD_OR_REMOVE)


@pytest.mark.parametrize(
    "event",
    [
        event_of("gaussian", 2.0),
        event_of("laplace", 5.0),
        poisson_sampled(event_of("gaussian", 2.0), 0.3),
        RESPONSE,
        compose_all([event_of("gaussian", 2.0), event_of("laplace", 5.0)]),
    ],
    ids=["gaussian", "laplace", "subsampled", "randomised response", "both"],
)
def test_composing_n_times_is_n_compositions(event: DpEvent) -> None:
    one_by_one = epsilon_of(compose_all([event] * 3), 1e-5, REPLACE)
    assert epsilon_of(compose(event, 3), 1e-5, REPLACE) == pytest.approx(one_by_one, rel=1e-6)
    assert epsilon_of(compose(event, 1), 1e-5, REPLACE) == pytest.approx(epsilon_of(event, 1e-5, REPLACE), rel=1e-9)
    assert one_by_one > epsilon_of(compose(event, 2), 1e-5, REPLACE)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)]
)
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(FglauditError, match="must"):
        noise_multiplier("gaussian", epsilon, delta, ZERO_OUT)


def test_nonsense_is_refused() -> None:
    with pytest.raises(FglauditError, match="at least once"):
        compose(event_of("gaussian", 1.0), 0)
    with pytest.raises(FglauditError, match="at least once"):
        noise_multiplier("gaussian", 1.0, 1e-5, ZERO_OUT, 0)
    with pytest.raises(FglauditError, match="positive and finite"):
        event_of("laplace", 0.0)
    for keep, classes in ((0.1, 7), (1.1, 7), (math.nan, 7), (1.0, 1)):
        with pytest.raises(FglauditError, match="keeps the true one of at least 2 classes"):
            response_event(keep, classes)
    assert epsilon_of(response_event(0.5, 2), 0.0, REPLACE) == 0
    with pytest.raises(FglauditError, match="only Laplace noise and randomised response"):
        epsilon_of(event_of("gaussian", 1.0), 0.0, ZERO_OUT)
    with pytest.raises(FglauditError, match=r"delta must lie in \[0, 1\)"):
        epsilon_of(event_of("gaussian", 1.0), 1.0, ZERO_OUT)
    with pytest.raises(FglauditError, match="sampling rate"):
        poisson_sampled(event_of("gaussian", 1.0), 1.5)
    with pytest.raises(FglauditError, match="between 1 and 10"):
        fixed_size_sampled(event_of("gaussian", 1.0), 11, 10)
    with pytest.raises(FglauditError, match="must support every released event"):
        epsilon_of(dp_accounting.UnsupportedDpEvent(), 1e-5, ZERO_OUT)
