"""Games, metrics and intervals against values that can be checked by hand."""

from __future__ import annotations

import pytest
import torch
from fglaudit.scoring.stats import advantage, advantage_interval
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.base import Comparison
from fglaudit.quantities.features import with_guesses
from fglaudit.quantities.game import Game, breakdown, score
from fglaudit.quantities.row_metrics import auc_of_entries, matched_exact, score_rows
from fglaudit.rng import derive

TRUTH = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0]])


def game(kind: FeatureKind = FeatureKind.BINARY, truth: Tensor = TRUTH) -> Game:
    nodes = torch.tensor([10, 20, 30])
    return Game(
        nodes,
        truth,
        torch.tensor([0, 0, 1]),
        kind=kind,
        labels=torch.tensor([0, 0, 1]),
        degrees=torch.tensor([1, 3, 9]),
        owners=torch.tensor([1, 1, 2]),
    )


def answer(rows: Tensor, nodes: list[int], proven: Tensor | None = None) -> Reconstruction:
    return Reconstruction(rows, torch.tensor(nodes), torch.linspace(0.1, 0.9, len(nodes)), proven)


def test_a_missing_row_is_a_miss_and_the_order_does_not_matter() -> None:
    result = score([game()], [answer(TRUTH[[2, 0]], [30, 10])])
    assert result.rows.exact_rate.tolist() == [1, 0, 1]
    assert result.rows.f1.tolist() == [1, 0, 1]
    assert result.rows.relative_error.tolist() == [0, 1, 0]
    assert result.matched_rate == pytest.approx(2 / 3)


def test_a_missing_row_is_a_miss_even_where_the_truth_is_empty() -> None:
    empty = torch.zeros(3, 4)
    assert score([game(truth=empty)], [answer(empty[:1], [10])]).rows.exact_rate.tolist() == [1, 0, 0]
    assert score([game(truth=empty)], [answer(empty[:0], [])]).rows.f1.tolist() == [0, 0, 0]


def test_rows_given_to_the_wrong_node_count_as_matched_only() -> None:
    result = score([game()], [answer(TRUTH, [20, 30, 10])])
    assert result.rows.exact_rate.sum() == 0
    assert result.matched_rate == 1.0
    unassigned = score([game()], [answer(TRUTH, [-1, -1, -1])])
    assert unassigned.rows.exact_rate.sum() == 0 and unassigned.matched_rate == 1.0


def test_more_rows_than_targets_do_not_help_matching() -> None:
    wrong = torch.ones(3, 4)
    rows = torch.cat([TRUTH, wrong])  # the wrong ones are more confident
    assert score([game()], [answer(rows, [-1] * 6)]).matched_rate == 0.0


def test_the_most_confident_row_of_a_node_counts() -> None:
    rows = torch.stack([TRUTH[0], 1 - TRUTH[0]])
    assert score([game()], [answer(rows, [10, 10])]).rows.exact_rate[0] == 0
    assert score([game()], [answer(rows.flip(0), [10, 10])]).rows.exact_rate[0] == 1


def test_false_proofs_are_counted() -> None:
    result = score([game()], [answer(torch.ones(2, 4), [10, 20], torch.tensor([True, False]))])
    assert result.false_proofs == 1 and result.proven is not None and result.proven.tolist() == [True, False, False]


def test_scaled_binary_and_real_rows() -> None:
    truth = torch.tensor([[0.5, 0, 0.5, 0]])
    ok = score_rows(truth * 1.0004, torch.tensor([True]), truth, FeatureKind.SCALED_BINARY)
    off = score_rows(truth * 1.01, torch.tensor([True]), truth, FeatureKind.SCALED_BINARY)
    assert ok.exact_rate.item() == 1 and off.exact_rate.item() == 0 and off.f1.item() == 1
    assert matched_exact(truth * 1.0004, truth, FeatureKind.REAL) == 1
    assert matched_exact(truth * 1.01, truth, FeatureKind.REAL) == 0


def test_auc_equals_scikit_learn() -> None:
    rng = derive(0, "auc")
    scores = torch.randint(-5, 9, (40, 7), generator=rng).float() / 8
    truth = (torch.rand(40, 7, generator=rng) < 0.3).float()
    expected = roc_auc_score(truth.flatten().numpy(), scores.flatten().numpy())
    assert auc_of_entries([scores[:10], scores[10:]], [truth[:10], truth[10:]], FeatureKind.BINARY) == pytest.approx(
        expected
    )
    assert auc_of_entries([scores], [torch.zeros(40, 7)], FeatureKind.BINARY) is None


def test_breakdown_and_clusters() -> None:
    values = torch.tensor([1.0, 0.0, 1.0])
    parts = breakdown([game()], values)
    assert parts["degree"] == {"0-1": 1.0, "3-4": 0.0, "9+": 1.0}
    assert parts["class"] == {"0": 0.5, "1": 1.0}
    compared = Comparison("exact_rate", values, torch.zeros(3), game().clusters, {})
    assert compared.cluster_sums() == [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]


def test_advantage_by_hand() -> None:
    assert advantage(0.6, 0.2) == pytest.approx(0.5)
    assert advantage(0.1, 0.2) == pytest.approx(-0.125)  # not clipped
    assert advantage(1.0, 0.995) is None


def test_few_clusters_give_a_range() -> None:
    point, low, high, kind = advantage_interval(torch.tensor([[10.0, 5, 0], [10, 9, 0]]), derive(0))
    assert [point, low, high] == [pytest.approx(v) for v in (0.7, 0.5, 0.9)] and kind == "range"


def test_no_hit_among_few_targets_is_not_certainty() -> None:
    clusters = torch.tensor([[4.0, 0, 0]] * 5)
    point, low, high, kind = advantage_interval(clusters, derive(0))
    assert (point, low, kind) == (0.0, 0.0, "bootstrap")
    assert high == pytest.approx(1 - 0.025 ** (1 / 20))


def test_bootstrap_covers_about_as_often_as_it_says() -> None:
    hits, rng = 0, derive(1, "coverage")
    for _ in range(200):
        rate = (0.5 + 0.15 * torch.randn(20, generator=rng)).clamp(0, 1)
        values = torch.binomial(torch.full((20,), 50.0), rate, generator=rng)
        clusters = torch.stack([torch.full((20,), 50.0), values, torch.zeros(20)], 1)
        _, low, high, _ = advantage_interval(clusters, rng, resamples=400)
        assert low is not None and high is not None
        hits += low <= 0.5 <= high
    assert 0.87 <= hits / 200 <= 0.99


@given(st.permutations(range(6)))
def test_cluster_order_does_not_change_the_point(order: list[int]) -> None:
    clusters = torch.tensor([[5.0, i, i / 2] for i in range(6)])
    assert advantage_interval(clusters[order], derive(0))[0] == pytest.approx(
        advantage_interval(clusters, derive(0))[0]
    )


def test_nodes_without_a_row_get_the_guess_that_anybody_could_make() -> None:
    result = answer(TRUTH[:1], [10], torch.tensor([True]))
    completed = with_guesses(result, answer(TRUTH[[1, 1]], [10, 20]))
    assert completed.nodes.tolist() == [10, 20] and torch.equal(completed.rows, TRUTH[:2])
    assert completed.proven is not None and completed.proven.tolist() == [True, False]
    assert completed.confidence[1] < completed.confidence[0]
