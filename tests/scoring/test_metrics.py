"""The clusters and the interval of a primary metric: rates, scores and cosines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fglaudit.errors import FglauditError
from fglaudit.quantities import QUANTITIES, quantity
from fglaudit.scoring.clusters import PairedClusters
from fglaudit.scoring.metrics import RATES, clusters_of, metric_interval, read_clusters, recorded_clusters

OWNERS = torch.arange(6).repeat_interleave(10)


def test_advantage_by_hand_is_not_clipped() -> None:
    values, controls = torch.full((60,), 0.1), torch.full((60,), 0.2)
    found = metric_interval("f1", clusters_of("f1", OWNERS, values, controls))
    assert found.value == pytest.approx(-0.125)
    assert metric_interval("f1", clusters_of("f1", OWNERS, values, torch.full((60,), 0.995))).value is None


@pytest.mark.parametrize(("metric", "kind"), [("exact_rate", "beta-binomial"), ("cosine", "cluster jackknife")])
def test_rates_and_scores_have_intervals_of_their_own(metric: str, kind: str) -> None:
    values = (torch.arange(60) % 3 == 0).float()
    assert metric_interval(metric, clusters_of(metric, OWNERS, values, torch.zeros(60))).kind == kind
    few = clusters_of(metric, OWNERS[:40], values[:40], torch.zeros(40))
    assert metric_interval(metric, few).kind == "range"


def test_every_metric_of_a_quantity_is_known_as_what_it_is() -> None:
    metrics = {quantity(name).metric for name in QUANTITIES}
    assert metrics == {"label_accuracy", "overlap", "auc", "cosine", "exact_rate"}
    assert metrics & RATES == {"label_accuracy", "exact_rate"}


def test_a_cosine_below_zero_keeps_its_advantage() -> None:
    values, controls = torch.linspace(-0.5, 1.0000001, 60), torch.full((60,), -0.25)
    paired = clusters_of("cosine", OWNERS, values, controls)
    assert metric_interval("cosine", paired).value == pytest.approx((0.25 + 0.25) / 1.25, abs=1e-6)
    assert read_clusters("cosine", paired.rows()).advantage == pytest.approx(paired.advantage)


def test_a_cosine_is_uninformative_on_its_own_scale() -> None:
    for control, informative in ((0.985, True), (0.991, False)):
        paired = clusters_of("cosine", OWNERS, torch.ones(60), torch.full((60,), control))
        assert paired.informative is informative is read_clusters("cosine", paired.rows()).informative


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5])
def test_values_off_the_scale_are_refused(value: float) -> None:
    values = torch.zeros(60)
    values[7] = value
    with pytest.raises(FglauditError, match="must be finite and lie"):
        clusters_of("f1", OWNERS, values, torch.zeros(60))


def test_rows_of_three_columns_are_refused() -> None:
    with pytest.raises(FglauditError, match=r"gained and lost, .*; got 3 numbers"):
        PairedClusters.from_rows([[10.0, 5.0, 0.0]] * 4)


def test_equal_partitions_are_added_up_and_others_stand_side_by_side() -> None:
    first = PairedClusters.from_rows([[10, 1, 2, 0], [20, 0, 5, 0]])
    second = PairedClusters.from_rows([[10, 0, 4, 0], [20, 2, 0, 1]])
    parts = [first.rows(), second.rows()]
    apart, same = PairedClusters.pool(parts, ["a", "b"]), PairedClusters.pool(parts, ["a", "a"])
    assert apart is not None and same is not None
    assert apart.rows() == [*first.rows(), *second.rows()]
    assert same.rows() == [[20, 1, 6, 0], [40, 2, 5, 1]]
    assert apart.advantage == pytest.approx(same.advantage)
    assert PairedClusters.pool([first.rows(), [[9, 0, 0, 0]]], ["a", "a"]) is None


def test_a_client_that_is_not_asked_about_in_every_training_keeps_its_place() -> None:
    """Which rows are known is drawn by the seed: then other clients are asked about, as many of them or not."""
    first = recorded_clusters("f1", torch.tensor([0, 0, 2]), torch.ones(3), torch.zeros(3), least=4)
    second = recorded_clusters("f1", torch.tensor([1, 2, 2]), torch.zeros(3), torch.zeros(3), least=4)
    assert [row[0] for row in first] == [2, 0, 1, 0] and [row[0] for row in second] == [0, 1, 2, 0]
    pooled = PairedClusters.pool([first, second], ["a", "a"])
    assert pooled is not None and pooled.rows() == [[2, 0, 2, 0], [1, 0, 0, 0], [3, 0, 1, 0]]
    third = recorded_clusters("f1", torch.tensor([3]), torch.ones(1), torch.zeros(1), least=4)
    more = PairedClusters.pool([first, third], ["a", "b"])
    assert more is not None and more.trainings is not None and more.trainings.tolist() == [0, 0, 1]


def test_the_worst_client_is_the_one_with_the_largest_advantage() -> None:
    paired = PairedClusters.from_rows([[10, 5, 4, 0], [10, 0, 6, 0], [10, 10, 0, 0]])
    assert paired.worst == pytest.approx(0.8)
    assert PairedClusters.from_rows([[10, 10, 0, 0]]).worst is None
    assert np.allclose(paired.each, [0.8, 0.6])
