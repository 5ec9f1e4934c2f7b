"""Which rows one node alone has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.unique_rows import MOST_COMPARED, unique_among, unique_exact


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_rows_of_words_are_unique_where_no_other_node_has_the_same_words(scale: float) -> None:
    every = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]]).float() * scale
    kind = FeatureKind.BINARY if scale == 1 else FeatureKind.SCALED_BINARY
    assert unique_among(every, every, kind).tolist() == [False, True, False, False, True]


def test_real_rows_that_one_exact_row_could_serve_both_are_not_unique() -> None:
    drawn = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    every = torch.cat([drawn, drawn[:1] * 1.0005, torch.zeros(1, 12)])
    expected = [False] + [True] * 39 + [False] * 2
    assert unique_among(every, every, FeatureKind.REAL).tolist() == expected


def test_of_real_rows_a_limited_number_is_looked_at() -> None:
    every = torch.randn(2 * MOST_COMPARED, 3, generator=torch.Generator().manual_seed(0))
    assert not unique_among(every, every, FeatureKind.REAL)[MOST_COMPARED:].any()


@pytest.mark.parametrize("kind", [FeatureKind.BINARY, FeatureKind.REAL])
def test_no_rows_are_asked_about_without_an_error(kind: FeatureKind) -> None:
    none: Tensor = torch.zeros(0, 3)
    assert unique_among(none, torch.ones(2, 3), kind).tolist() == []


def answer(rows: Tensor, nodes: list[int]) -> Reconstruction:
    return Reconstruction(rows, torch.tensor(nodes), torch.ones(len(nodes)))


def test_what_a_guess_has_too_and_what_other_nodes_have_does_not_count() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 1, 0]])
    game = Game.about(torch.arange(5), rows, FeatureKind.BINARY)
    most = answer(rows[[0, 1, 3, 4, 2]], [0, 1, 3, 4, 4])
    assert unique_exact(game, most, [answer(rows[1:2], [1]), answer(rows[:1], [3])]) == 1
    assert unique_exact(game, answer(rows, [0, 1, 2, 3, 4]), []) == 3
    assert unique_exact(game, answer(rows[:0], []), []) == 0


def test_nodes_with_several_samples_are_left_out() -> None:
    game = Game.about(torch.tensor([0, 0, 1, 1]), torch.eye(4), FeatureKind.BINARY)
    assert unique_exact(game, answer(torch.eye(4), [0, 0, 1, 1]), []) is None
