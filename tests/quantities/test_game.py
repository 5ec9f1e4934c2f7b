"""Games, metrics and intervals against values that can be checked by hand."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows import metrics as row_metrics
from fglaudit.quantities.rows.breakdown import breakdown
from fglaudit.quantities.rows.features import with_guesses
from fglaudit.quantities.rows.game import Game, score
from fglaudit.quantities.rows.metrics import RELATIVE_TOLERANCE, auc_of_entries, matched_exact, score_rows
from fglaudit.rng import derive
from fglaudit.scoring.metrics import clusters_of

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


def test_real_rows_are_matched_as_by_the_hungarian_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are close to several true ones among them; in small blocks."""
    monkeypatch.setattr(row_metrics, "_PAIRS_AT_ONCE", 100)
    rng = derive(0, "matching")
    truth = torch.randn(30, 40, generator=rng)
    truth[10:16] = truth[3] * (1 + 2e-4 * torch.arange(6)).unsqueeze(1)
    rows = truth[torch.randint(30, (50,), generator=rng)] * (1 + 6e-4 * torch.randn(50, 1, generator=rng))
    close = torch.cdist(rows, truth, p=float("inf")) <= RELATIVE_TOLERANCE * truth.abs().amax(1)
    row, column = linear_sum_assignment(close.double().numpy(), maximize=True)
    expected = int(close[row, column].sum())
    assert 10 < expected < 30 and matched_exact(rows, truth, FeatureKind.REAL) == expected
    assert matched_exact(torch.zeros(5, 40), truth, FeatureKind.REAL) == 0


def test_auc_equals_scikit_learn() -> None:
    rng = derive(0, "auc")
    scores = torch.randint(-5, 9, (40, 7), generator=rng).float() / 8
    truth = (torch.rand(40, 7, generator=rng) < 0.3).float()
    expected = roc_auc_score(truth.flatten().numpy(), scores.flatten().numpy())
    assert auc_of_entries([scores[:10], scores[10:]], [truth[:10], truth[10:]], FeatureKind.BINARY) == pytest.approx(
        expected
    )
    assert auc_of_entries([scores], [torch.zeros(40, 7)], FeatureKind.BINARY) is None


def test_the_sign_of_a_zero_ranks_nothing() -> None:
    """A solver leaves -0 where another leaves 0: rounded to words, an estimate of -1e-17 is -0."""
    truth = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    for scores in ([0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, -0.0, 0.0], [0.0, 0.0, 0.0, 0.0]):
        assert auc_of_entries([torch.tensor([scores])], [truth], FeatureKind.BINARY) == 0.5
    assert auc_of_entries([torch.tensor([[1.0, -1.0, -0.0, 0.0]])], [truth], FeatureKind.BINARY) == 0.875


def test_breakdown_and_clusters() -> None:
    values = torch.tensor([1.0, 0.0, 1.0])
    parts = breakdown([game()], values)
    assert parts["degree"] == {"0-1": 1.0, "3-4": 0.0, "9+": 1.0}
    assert parts["class"] == {"0": 0.5, "1": 1.0}
    assert parts["degree percentile"] == {"lowest 1 %": 1.0, "highest 1 %": 1.0}
    kept = clusters_of("exact_rate", game().clusters, values, torch.tensor([0.0, 1.0, 0.0]))
    assert kept.rows() == [[2.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]]


def test_nodes_without_a_row_get_the_guess_that_anybody_could_make() -> None:
    result = answer(TRUTH[:1], [10], torch.tensor([True]))
    completed = with_guesses(result, answer(TRUTH[[1, 1]], [10, 20]))
    assert completed.nodes.tolist() == [10, 20] and torch.equal(completed.rows, TRUTH[:2])
    assert completed.proven is not None and completed.proven.tolist() == [True, False]
    assert completed.confidence[1] < completed.confidence[0]
