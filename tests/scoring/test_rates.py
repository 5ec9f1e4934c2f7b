"""Intervals of rates: figures that can be checked by hand, and coverage on a few seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import betabinom, binomtest

from fglaudit.errors import FglauditError
from fglaudit.scoring.beta_binomial import rate_high, rate_low
from fglaudit.scoring.clusters import TAIL, Floats, PairedClusters
from fglaudit.scoring.rates import (
    CORRELATION,
    advantage_exceeds_zero,
    advantage_interval,
    clusters_needed,
    rate_limits,
    ratio_high,
    ratio_low,
    seeds_needed,
)


def paired(
    targets: Sequence[float], control: Sequence[float], gained: Sequence[float], lost: Sequence[float]
) -> PairedClusters:
    return PairedClusters(*(np.array(column, dtype=np.float64) for column in (targets, control, gained, lost)))


def ends(targets: Floats, hits: Floats) -> tuple[float, float]:
    return rate_limits(targets, hits, TAIL)


@pytest.mark.parametrize(("clusters", "high"), [(50, 0.016), (40, 0.0196), (10, 0.078)])
def test_upper_limit_without_a_hit(clusters: int, high: float) -> None:
    found = ends(np.full(clusters, 60.0), np.zeros(clusters))
    assert found[0] == 0
    assert found[1] == pytest.approx(high, rel=0.02)
    # No hit in any cluster has probability betabinom.pmf(0) to the power of the clusters: 0.025 at the limit.
    assert betabinom.pmf(0, 60, found[1], 1 - found[1]) ** clusters == pytest.approx(0.025, rel=1e-3)


def test_without_a_hit_uneven_clusters_are_judged_by_their_sizes() -> None:
    sizes = np.array([300.0, 100, 50, 40, 8, 2])
    high = ends(sizes, np.zeros(6))[1]
    assert math.prod(betabinom.pmf(0, int(n), high, 1 - high) for n in sizes) == pytest.approx(0.025, rel=1e-3)


def test_every_target_hit_mirrors_none() -> None:
    sizes = np.array([10.0, 20, 20, 5, 40])
    assert ends(sizes, sizes) == pytest.approx([1 - x for x in reversed(ends(sizes, 0 * sizes))], abs=1e-6)


def test_clusters_that_are_all_or_nothing_get_the_wider_limits() -> None:
    sizes = np.full(12, 30.0)
    whole = np.array([30.0] * 5 + [0.0] * 7)
    exact = binomtest(5, 12).proportion_ci(0.95, "exact")
    assert ends(sizes, whole) == pytest.approx((exact.low, exact.high), abs=1e-6)
    mixed = np.array([29.0] * 5 + [1.0] * 5 + [0.0] * 2)  # the same total
    low, high = ends(sizes, mixed)
    assert exact.low < low and high < exact.high


def test_below_five_clusters_there_is_only_the_range() -> None:
    interval = advantage_interval(paired([10] * 4, [0] * 4, [1, 5, 9, 2], [0] * 4))
    assert (interval.kind, interval.shown) == ("range", False)
    assert interval.low == pytest.approx(0.1) and interval.high == pytest.approx(0.9)


def test_an_advantage_over_a_control_without_hits_has_the_upper_limit_of_the_rate() -> None:
    n = 10
    hits = [0, 3, 10, 2, 0, 30, 1, 1, 0, 4]
    over_nothing = advantage_interval(paired([60] * n, [0] * n, hits, [0] * n))
    low, high = ends(np.full(n, 60.0), np.array(hits, dtype=np.float64))
    assert over_nothing.value == sum(hits) / (60 * n)
    assert over_nothing.high == high
    assert over_nothing.low is not None and over_nothing.low < low


def test_an_attack_that_repeats_its_control_can_be_held() -> None:
    """Gains are out of what the control leaves: 42 targets of 60 in each of 50 clusters."""
    interval = advantage_interval(paired([60] * 50, [18] * 50, [0] * 50, [0] * 50))
    assert interval.value == 0
    assert interval.high is not None
    assert betabinom.pmf(0, 42, interval.high, 1 - interval.high) ** 50 == pytest.approx(0.025, rel=1e-3)
    assert interval.low is not None and -0.05 < interval.low < 0


def test_an_uninformative_control_gives_nothing() -> None:
    assert advantage_interval(paired([100] * 6, [99] * 6, [1] * 6, [0] * 6)).value is None


@pytest.mark.parametrize(
    ("top", "bottom"),
    [((0.3, 0.1, 0.7), (0.6, 0.4, 0.9)), ((0.0, 0.0, 0.2), (0.99, 0.8, 1.0)), ((0.1, 0.05, 0.5), (0.2, 0.1, 0.6))],
)
def test_limits_of_a_ratio_solve_their_equation(
    top: tuple[float, float, float], bottom: tuple[float, float, float]
) -> None:
    (a, a_low, a_high), (b, b_low, b_high) = top, bottom

    def excess(r: float, a_end: float, b_end: float) -> float:
        return (a - r * b) ** 2 - (a - a_end) ** 2 - r**2 * (b - b_end) ** 2

    low, high = ratio_low(a, a_low, b, b_high), ratio_high(a, a_high, b, b_low)
    expected = brentq(excess, a / b, 100, args=(a_high, b_low))
    assert high == pytest.approx(expected)
    assert low == pytest.approx(brentq(excess, 0, a / b, args=(a_low, b_high)) if a else 0.0, abs=1e-9)


def test_how_many_clusters_and_seeds_a_verdict_needs() -> None:
    needed = clusters_needed(0.02, 60)
    assert needed == 40
    assert ends(np.full(needed, 60.0), np.zeros(needed))[1] <= 0.02
    assert ends(np.full(needed - 1, 60.0), np.zeros(needed - 1))[1] > 0.02
    assert seeds_needed(0.02, np.full(10, 60.0), 1) == 4
    assert seeds_needed(0.02, np.full(20, 60.0), 2) == 4
    with pytest.raises(FglauditError, match="between 0 and 1"):
        clusters_needed(0, 60)


def test_pairs_are_summed_over_clusters() -> None:
    clusters = torch.tensor([7, 3, 7, 3, 3])
    values, controls = torch.tensor([1.0, 0, 0, 1, 1]), torch.tensor([0.0, 1, 0, 1, 0])
    pairs = PairedClusters.of(clusters, values, controls)
    assert pairs.rows() == [[3, 2, 1, 1], [2, 0, 1, 0]]
    assert PairedClusters.from_rows(pairs.rows()).rows() == pairs.rows()
    assert pairs.advantage == pytest.approx((3 / 5 - 2 / 5) / (1 - 2 / 5))


def test_values_beyond_their_scale_are_refused() -> None:
    with pytest.raises(FglauditError, match="cluster 1 has 10 targets"):
        paired([10, 10], [0, 4], [1, 7], [0, 0])


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_the_limits_cover(rate: float, uneven: bool) -> None:
    """400 runs at the stated correlation; 0.92 is 0.95 less about three standard errors."""
    rng = np.random.default_rng(7)
    sizes = np.array([64.0, 32, 21, 16, 13, 11, 9, 8]) if uneven else np.full(8, 20.0)
    hits = rng.binomial(sizes.astype(int), rng.beta(rate, 1 - rate, (400, 8))).astype(np.float64)
    limits = [ends(sizes, row) for row in hits]
    assert np.mean([low <= rate <= high for low, high in limits]) >= 0.92


@pytest.mark.parametrize("control", [0.02, 0.3])
def test_the_limits_of_an_advantage_cover(control: float) -> None:
    rng = np.random.default_rng(8)
    value, n = 0.5, np.full(6, 20)
    truth = (value - control) / (1 - control)
    held = []
    for _ in range(200):
        guessed = rng.binomial(n, rng.beta(control, 1 - control, 6))
        own = rng.beta(value, 1 - value, 6)
        gained, lost = rng.binomial(n - guessed, own), rng.binomial(guessed, 1 - own)
        interval = advantage_interval(paired(n.tolist(), guessed.tolist(), gained.tolist(), lost.tolist()))
        if interval.low is not None and interval.high is not None:
            held.append(interval.low <= truth <= interval.high)
    assert len(held) > 190
    assert np.mean(held) >= 0.91


@pytest.mark.parametrize("shared", [0.0, 0.05, 0.4])
def test_whether_an_advantage_exceeds_zero_is_what_its_interval_says(shared: float) -> None:
    """With and without losses, with clusters hit wholly or not at all, at one tail and at the tails of Holm's rule."""
    rng, said = np.random.default_rng(3), []
    for number in range(40):
        targets = rng.integers(1, 60, 8).astype(np.float64)
        control = np.floor(targets * shared * rng.random(8))
        room = targets - control
        gained = np.floor(room * rng.random(8) * rng.random()) if number % 4 else room * (rng.random(8) < 0.4)
        lost = np.floor(control * rng.random(8) * (number % 3) / 2)
        tried = PairedClusters(targets, control, gained, lost)
        for tail in (0.025, 0.025 / 3, 0.025 / 40):
            low = advantage_interval(tried, tail=tail).low
            assert low is not None
            said.append(advantage_exceeds_zero(tried, tail=tail))
            assert said[-1] == (low > 0)
    assert 5 < sum(said) < len(said) - 5
    assert not advantage_exceeds_zero(paired([9] * 4, [0] * 4, [9] * 4, [0] * 4))  # four clusters give only a range


def test_clusters_count_with_their_whole_targets_and_one_at_the_least() -> None:
    """Sums of values are no whole numbers: three targets less a rounding error are three, half a target is one."""
    hits = np.array([2.5, 0.0, 1.0, 2.0, 0.5, 1.0])
    for targets, size in ((3 - 1e-12, 3), (3.0, 3), (1.0, 1), (0.5, 1)):
        low, high = ends(np.full(6, targets), hits * targets / 3)
        total = round(7 / 18 * 6 * size, 9)
        assert low == pytest.approx(rate_low((size,) * 6, CORRELATION, total, TAIL), rel=1e-9)
        assert high == pytest.approx(rate_high((size,) * 6, CORRELATION, total, TAIL), rel=1e-9)
