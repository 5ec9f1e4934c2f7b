"""The law of the hits of correlated clusters against scipy's single distributions and against enumeration."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from scipy.stats import betabinom, binom, binomtest

from fglaudit.scoring import beta_binomial
from fglaudit.scoring.beta_binomial import BetaBinomialTotal


@pytest.mark.parametrize("correlation", [0.1, 0.5, 0.9])
def test_one_cluster_is_beta_binomial(correlation: float) -> None:
    concentration = (1 - correlation) / correlation
    expected = betabinom.pmf(np.arange(13), 12, 0.3 * concentration, 0.7 * concentration)
    assert BetaBinomialTotal((12,), correlation).probabilities(0.3) == pytest.approx(expected, abs=1e-12)


def test_clusters_of_several_sizes_add_up() -> None:
    """With correlation 0.5, a + b = 1: each cluster is beta-binomial with a = rate."""
    sizes = (3, 7, 3, 1, 12)
    expected = reduce(np.convolve, [betabinom.pmf(np.arange(n + 1), n, 0.2, 0.8) for n in sizes])
    assert BetaBinomialTotal(sizes, 0.5).probabilities(0.2) == pytest.approx(expected, abs=1e-12)


def test_the_mean_is_the_rate_and_the_variance_that_of_correlated_targets() -> None:
    sizes, rate, correlation = (4, 9, 30), 0.35, 0.5
    law = BetaBinomialTotal(sizes, correlation).probabilities(rate)
    totals = np.arange(len(law))
    mean = float(law @ totals)
    assert mean == pytest.approx(rate * sum(sizes))
    expected = sum(n * rate * (1 - rate) * (1 + (n - 1) * correlation) for n in sizes)
    assert float(law @ (totals - mean) ** 2) == pytest.approx(expected)


def test_uncorrelated_targets_are_binomial_and_get_the_limits_of_clopper_and_pearson() -> None:
    law = BetaBinomialTotal((10, 25, 5), 0.0)
    assert law.probabilities(0.15) == pytest.approx(binom.pmf(np.arange(41), 40, 0.15), abs=1e-12)
    for hits in (0, 1, 7, 39, 40):
        exact = binomtest(hits, 40).proportion_ci(0.95, "exact")
        assert (law.low(hits, 0.025), law.high(hits, 0.025)) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_clusters_that_are_all_or_nothing_count_as_one_target_each() -> None:
    law = BetaBinomialTotal((20,) * 8, 1.0)
    exact = binomtest(3, 8).proportion_ci(0.95, "exact")
    assert (law.low(60, 0.025), law.high(60, 0.025)) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_limits_are_where_the_tails_are() -> None:
    law = BetaBinomialTotal((5, 5, 8, 20), 0.5)
    low, high = law.low(9, 0.01), law.high(9, 0.01)
    assert law.probabilities(low)[9:].sum() == pytest.approx(0.01, abs=1e-5)
    assert law.probabilities(high)[:10].sum() == pytest.approx(0.01, abs=1e-5)
    assert low < 9 / 38 < high


def test_shares_of_hits_are_rounded_outwards() -> None:
    law = BetaBinomialTotal((10,) * 6, 0.5)
    assert law.high(7.2, 0.025) == law.high(8, 0.025)
    assert law.low(7.8, 0.025) == law.low(7, 0.025)


def test_what_is_no_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one target"):
        BetaBinomialTotal((3, 0), 0.5)
    with pytest.raises(ValueError, match="correlation lies in"):
        BetaBinomialTotal((3,), 1.5)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_nothing_and_everything_hit_need_no_convolution(correlation: float) -> None:
    sizes, rate = (3, 7, 3, 1, 12), 0.03
    law = BetaBinomialTotal(sizes, correlation)
    whole = law.probabilities(rate)
    high = law.high(0, whole[0])
    assert high == pytest.approx(rate, abs=1e-6)
    assert law.at_least(26, 1 - rate) == pytest.approx(whole[0], abs=1e-12)  # misses are hits at the other rate
    assert law.at_least(5, rate) == pytest.approx(whole[5:].sum(), abs=1e-12)


@pytest.mark.parametrize("sizes", [(3, 7, 7), (4,) * 13, (1, 2, 3, 4, 5, 5, 5, 40), (9, 9, 12, 12, 12)])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_clusters_taken_two_by_two_have_the_same_total(
    sizes: tuple[int, ...], correlation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = BetaBinomialTotal(sizes, correlation)
    wanted = np.ones(1)
    for size in sizes:
        wanted = np.convolve(wanted, BetaBinomialTotal((size,), correlation).probabilities(0.3))
    monkeypatch.setattr(beta_binomial, "_AT_ONCE", 1)
    assert law.probabilities(0.3) == pytest.approx(wanted, abs=1e-13)
