"""Intervals of scores against Student's t, explicit leave-one-out loops and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from fglaudit.scoring.clusters import Floats, PairedClusters
from fglaudit.scoring.rates import advantage_interval
from fglaudit.scoring.scores import jackknife_error, score_advantage_interval
from fglaudit.scoring.studentized import critical_value, degrees_of_freedom

UNEVEN = np.array([64.0, 32, 21, 16, 13])


def over_nothing(targets: Floats, means: Floats) -> PairedClusters:
    """Scores beside a control that is 0 everywhere."""
    return PairedClusters(targets, 0 * targets, targets * means, 0 * targets)


@pytest.mark.parametrize("clusters", [5, 12, 250])
def test_equal_clusters_have_students_critical_value(clusters: int) -> None:
    assert critical_value(np.full(clusters, 3.0), 0.025) == pytest.approx(student.ppf(0.975, clusters - 1))


def test_nearly_equal_clusters_have_nearly_students_critical_value() -> None:
    """This goes through the integral, which the equal ones need not."""
    sizes = np.array([100.0, 100, 100, 100, 100.01, 100])
    for tail in (0.025, 0.005):
        assert critical_value(sizes, tail) == pytest.approx(student.ppf(1 - tail, 5), rel=1e-3)


@pytest.mark.parametrize("tail", [0.025, 0.007])
def test_critical_value_of_uneven_clusters_against_draws(tail: float) -> None:
    """The worse of equal variances and variances that fall with size; here the first."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal((400_000, 5))
    w = UNEVEN / UNEVEN.sum()
    mean = y @ w
    without = [(mean - w[c] * y[:, c]) / (1 - w[c]) for c in range(5)]
    error = np.sqrt(4 / 5 * sum((m - mean) ** 2 for m in without))
    expected = np.quantile(np.abs(mean) / error, 1 - 2 * tail)
    assert critical_value(UNEVEN, tail) == pytest.approx(expected, rel=0.02)


def test_degrees_of_freedom_of_many_clusters() -> None:
    weights = np.arange(1.0, 31)
    weights /= weights.sum()
    a = np.eye(30) - weights
    b = a.T @ np.diag((weights / (1 - weights)) ** 2) @ a
    assert degrees_of_freedom(weights) == pytest.approx(np.trace(b) ** 2 / np.trace(b @ b))
    assert degrees_of_freedom(np.full(40, 1 / 40)) == pytest.approx(39)


def test_the_error_is_the_jackknifes() -> None:
    rng = np.random.default_rng(0)
    control = UNEVEN * rng.uniform(0.1, 0.5, 5)
    gained, lost = rng.uniform(0, 0.3, 5) * (UNEVEN - control), rng.uniform(0, 0.3, 5) * control
    pairs = PairedClusters(UNEVEN, control, gained, lost)
    rest = [
        PairedClusters(*(np.delete(part, c) for part in (UNEVEN, control, gained, lost))).advantage for c in range(5)
    ]
    expected = np.sqrt(4 / 5 * sum((r - pairs.advantage) ** 2 for r in rest))
    assert jackknife_error(pairs, gained - lost) == pytest.approx(expected)
    assert jackknife_error(pairs, gained) != pytest.approx(expected)


def test_in_the_middle_of_the_scale_it_is_the_plain_t_interval() -> None:
    means = np.array([0.45, 0.5, 0.52, 0.48, 0.55, 0.5])
    interval = score_advantage_interval(over_nothing(np.full(6, 10.0), means))
    reach = student.ppf(0.975, 5) * means.std(ddof=1) / np.sqrt(6)
    assert interval.low == pytest.approx(0.5 - reach, abs=1e-3)
    assert interval.high == pytest.approx(0.5 + reach, abs=1e-3)


def test_the_advantage_does_not_depend_on_the_scale() -> None:
    """Cosines in [-1, 1] are mapped onto [0, 1]: (1 + c) / 2."""
    cosine, guess = np.array([0.9, 0.7, 0.8, 0.6, 0.95]), np.array([0.2, 0.1, 0.3, 0.2, 0.1])
    n = np.full(5, 10.0)
    pairs = PairedClusters(n, n * (1 + guess) / 2, n * (cosine - guess) / 2, 0 * n)
    expected = (cosine.mean() - guess.mean()) / (1 - guess.mean())
    assert score_advantage_interval(pairs).value == pytest.approx(expected)


def test_scores_that_do_not_move_get_the_limits_of_a_rate() -> None:
    still = over_nothing(np.full(10, 60.0), np.zeros(10))
    assert score_advantage_interval(still).high == pytest.approx(advantage_interval(still).high or 0)
    assert (score_advantage_interval(still).high or 0) == pytest.approx(0.078, rel=0.02)
    perfect = over_nothing(np.full(10, 60.0), np.ones(10))
    assert (score_advantage_interval(perfect).low or 1) < 0.95


def test_an_attack_that_mostly_loses_is_known_to_lose() -> None:
    """A row or two is right by chance: losses vary little, and what varies in so small a gain is small as well."""
    rng = np.random.default_rng(4)
    n = np.full(10, 240.0)
    control = n * rng.uniform(0.15, 0.17, 10)
    pairs = PairedClusters(n, control, 0.02 * rng.binomial(2, 0.2, 10).astype(np.float64), control - 0.001)
    found = score_advantage_interval(pairs)
    assert found.value is not None and found.high is not None
    assert -0.2 < found.value < found.high < found.value + 0.02


def test_losses_alone_have_a_t_interval() -> None:
    """Where nothing is gained no side is stretched."""
    n, control = np.full(5, 1000.0), np.full(5, 0.5)
    means = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    found = score_advantage_interval(PairedClusters(n, n * control, 0 * n, n * means))
    lost = means / (1 - control)
    reach = student.ppf(0.975, 4) * lost.std(ddof=1) / np.sqrt(5)
    assert found.value == pytest.approx(-lost.mean())
    assert found.high == pytest.approx(-lost.mean() + reach)


def test_a_rare_gain_reaches_as_far_as_it_may() -> None:
    """One cluster of ten in which much is gained: it may be one of five just as well."""
    n = np.full(10, 100.0)
    gained = np.array([30.0, *[0.1] * 9])
    found = score_advantage_interval(PairedClusters(n, 0.1 * n, gained, np.full(10, 1.0)))
    assert found.value is not None and found.high is not None and found.high > 5 * found.value


def test_no_advantage_is_above_one() -> None:
    n = np.full(5, 10.0)
    wild = PairedClusters(n, 0.3 * n, np.array([7.0, 0.0, 7.0, 6.9, 0.1]), np.array([0.0, 3.0, 0.0, 0.0, 2.9]))
    assert (score_advantage_interval(wild).high or 2) <= 1


def test_below_five_clusters_there_is_only_the_range() -> None:
    interval = score_advantage_interval(over_nothing(np.full(4, 10.0), np.array([0.2, 0.4, 0.6, 0.8])))
    assert (interval.kind, interval.shown) == ("range", False)
    assert (interval.low, interval.high) == pytest.approx((0.2, 0.8))


@pytest.mark.parametrize("mean", [0.1, 0.5])
@pytest.mark.parametrize("sizes", [np.full(5, 20.0), UNEVEN], ids=["equal", "uneven"])
def test_the_limits_cover(sizes: Floats, mean: float) -> None:
    """2000 runs of skewed cluster means; 0.93 is the bar."""
    rng = np.random.default_rng(11)
    means = rng.beta(mean * 9, (1 - mean) * 9, (2000, 5))
    intervals = [score_advantage_interval(over_nothing(sizes, row)) for row in means]
    limits = np.array([(i.low, i.high) for i in intervals], dtype=np.float64)
    assert np.mean((limits[:, 0] <= mean) & (limits[:, 1] >= mean)) >= 0.93
