"""One client that loses everything is seen; nine thousand lucky clients are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import betabinom

from fglaudit.scoring.beta_binomial import BetaBinomialTotal, log_no_hit
from fglaudit.scoring.clusters import PairedClusters
from fglaudit.scoring.one_client import chance_at_least, chance_each_at_least, one_client_p_value
from fglaudit.scoring.rates import CORRELATION, clusters_like, clusters_needed, seeds_needed


def clusters(size: int, gained: list[float], lost: list[float] | None = None) -> PairedClusters:
    lost = lost or [0.0] * len(gained)
    return PairedClusters.from_rows([[size, most, g, most] for g, most in zip(gained, lost, strict=True)])


def test_one_client_rebuilt_wholly_is_seen_if_it_has_targets_enough() -> None:
    p = {size: one_client_p_value(clusters(size, [size] + [0.0] * 9)) for size in (10, 60, 150, 300)}
    assert p[10] > 0.05 > 0.025 > p[60] > p[150] > p[300]
    assert p[300] < 0.025 / 7


def test_losses_elsewhere_and_fewer_gains_speak_against_it() -> None:
    plain = one_client_p_value(clusters(300, [300] + [0.0] * 9))
    assert one_client_p_value(clusters(300, [150] + [0.0] * 9)) > plain
    assert one_client_p_value(clusters(300, [300] + [0.0] * 9, [0.0] + [60.0] * 9)) > plain
    assert one_client_p_value(clusters(300, [0.0] * 10)) == one_client_p_value(clusters(300, [300] * 4)) == 1.0


@pytest.mark.parametrize(("size", "rate", "correlation"), [(7, 0.2, 0.5), (40, 0.02, 0.3), (1, 0.5, 0.5)])
def test_probability_of_no_hit_equals_the_whole_law(size: int, rate: float, correlation: float) -> None:
    expected = BetaBinomialTotal((size,), correlation).probabilities(rate)[0]
    assert np.exp(log_no_hit(np.array([size]), rate, correlation)[0]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
def test_harmless_attacks_are_rarely_accused(rate: float) -> None:
    """Attack and control hit with the stated correlation, independently: at most 0.025, and 400 runs."""
    rng, runs, alarms = np.random.default_rng(5), 400, 0
    for _ in range(runs):
        hit, control = (rng.random((8, 50)) < betabinom_rates(rng, rate)[:, None] for _ in range(2))
        rows = np.stack([np.full(8, 50.0), control.sum(1), (hit & ~control).sum(1), (control & ~hit).sum(1)], 1)
        alarms += one_client_p_value(PairedClusters.from_rows(rows.tolist())) <= 0.025
    assert alarms / runs <= 0.025 + 3 * (0.025 * 0.975 / runs) ** 0.5


def betabinom_rates(rng: np.random.Generator, mean: float) -> np.ndarray:
    """Rates of 8 clusters with correlation 0.5: a Beta law whose parameters add up to 1."""
    rates = rng.beta(mean, 1 - mean, 8)
    assert betabinom(1, mean, 1 - mean).mean() == pytest.approx(mean)
    return rates


def test_parties_needed_by_sizes_like_these() -> None:
    equal = np.full(10, 60.0)
    assert clusters_like(equal, 0.02) == clusters_needed(0.02, 60) == 40
    assert seeds_needed(0.02, equal, 1) == 4
    uneven = np.array([1.0, 1.0, 1.0, 1.0, 596.0])
    assert clusters_like(uneven, 0.02) > clusters_needed(0.02, 120)


def test_each_client_at_one_rate_is_the_beta_binomial_law() -> None:
    sizes, hits = np.array([7, 0, 12, 12, 30]), np.array([3, 0, -4, 12, 1])
    a, b = 0.2 * (1 - CORRELATION) / CORRELATION, 0.8 * (1 - CORRELATION) / CORRELATION
    plain = [1.0 if h < 1 else betabinom(n, a, b).sf(h - 1) for n, h in zip(sizes, hits, strict=True)]
    assert chance_each_at_least(sizes, hits, 0.2) == pytest.approx(plain, rel=1e-9)
    assert [chance_at_least(n, h, np.array([0.2]))[0] for n, h in zip(sizes, hits, strict=True)] == pytest.approx(plain)
