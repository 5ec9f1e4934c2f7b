"""Clients that do well or badly with their training: intervals over trainings, against draws of a known truth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fglaudit.scoring.clusters import Floats, PairedClusters
from fglaudit.scoring.metrics import exceeds_zero, metric_interval
from fglaudit.scoring.trainings import over_trainings

CLIENTS, TARGETS, RUNS = 10, 30.0, 60


def trained(rates: Floats, rng: np.random.Generator) -> PairedClusters:
    """Hits at ten clients of every training, each training with a rate of its own [S]."""
    clusters = rates.repeat(CLIENTS)
    targets, none = np.full(len(clusters), TARGETS), np.zeros(len(clusters))
    hits = rng.binomial(int(TARGETS), clusters).astype(np.float64)
    return PairedClusters(targets, none, hits, none, trainings=np.arange(float(len(rates))).repeat(CLIENTS))


@pytest.mark.parametrize("metric", ["exact_rate", "f1"])
def test_trainings_that_differ_are_the_clusters(metric: str) -> None:
    """Of five trainings with rates uniform around 0.5, limits over the 50 clients held 0.5 in half of the runs."""
    rng, covered = np.random.default_rng(0), np.zeros(2)
    for _ in range(RUNS):
        drawn = trained(rng.random(5), rng)
        alone = metric_interval(metric, dataclasses.replace(drawn, trainings=None))
        together = metric_interval(metric, drawn)
        assert None not in (alone.low, alone.high, together.low, together.high)
        assert together.low <= alone.low and together.high >= alone.high  # type: ignore[operator]
        covered += [each.low <= 0.5 <= each.high for each in (alone, together)]  # type: ignore[operator]
    assert covered[0] <= 0.7 * RUNS and covered[1] >= 0.9 * RUNS, covered


def test_clients_that_are_independent_keep_their_interval() -> None:
    rng = np.random.default_rng(1)
    wider = sum(over_trainings(trained(np.full(5, 0.3), rng), 0.025) is not None for _ in range(200))
    assert wider <= 24, wider  # 5 % of the runs; 24 has a chance of 1e-4


def test_luck_that_all_clients_share_is_seldom_a_leak() -> None:
    """A score that is off by the same luck at every client of a training, on average as good as its control."""
    rng, called = np.random.default_rng(2), np.zeros(2)
    for _ in range(200):
        moved = rng.normal(0, 0.05, 3).repeat(CLIENTS) + rng.normal(0, 0.02, 3 * CLIENTS)
        targets = np.full(3 * CLIENTS, TARGETS)
        drawn = PairedClusters(
            targets, 0.6 * targets, targets * moved.clip(0), targets * (-moved).clip(0),
            trainings=np.arange(3.0).repeat(CLIENTS),
        )  # fmt: skip
        called += [exceeds_zero("overlap", dataclasses.replace(drawn, trainings=None)), exceeds_zero("overlap", drawn)]
    assert called[0] >= 50 and called[1] <= 14, called


def test_a_leak_is_called_exactly_where_the_interval_lies_above_zero() -> None:
    rng = np.random.default_rng(3)
    for metric in ("exact_rate", "overlap"):
        for _ in range(30):
            drawn = trained(rng.random(3) * 0.2, rng)
            low = metric_interval(metric, drawn).low
            assert low is not None and exceeds_zero(metric, drawn) is (low > 0)


def test_limits_over_trainings_are_numbers() -> None:
    """Where one training alone leaves room the jackknife has no error; no advantage lies below that of no hit."""
    targets = np.full(10, TARGETS)
    control = np.array([0.0] * 5 + [TARGETS] * 5)
    gained = np.array([TARGETS / 2] * 5 + [0.0] * 5)
    drawn = PairedClusters(targets, control, gained, 0.2 * control, trainings=np.array([0.0] * 5 + [1.0] * 5))
    found = metric_interval("exact_rate", drawn)
    assert found.low is not None and found.high is not None
    assert -1 <= found.low <= drawn.advantage <= found.high <= 1


def test_pooled_trainings_are_told_apart_and_one_partition_is_one() -> None:
    rng = np.random.default_rng(4)
    parts = [trained(np.array([rate]), rng).rows() for rate in (0.1, 0.9)]
    pooled = PairedClusters.pool(parts, ["first", "second"])
    assert pooled is not None and pooled.trainings is not None
    assert pooled.trainings.tolist() == [0.0] * CLIENTS + [1.0] * CLIENTS
    assert over_trainings(pooled, 0.025) is not None
    again = PairedClusters.pool(parts, ["first", "first"])
    assert again is not None and over_trainings(again, 0.025) is None
