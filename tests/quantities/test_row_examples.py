"""True rows beside rebuilt ones: the best, the median and the worst target, checked by hand."""

from __future__ import annotations

import json

import pytest
import torch
from execution_runs import suite
from torch import Tensor

from fglaudit.execution.folder.stored_record import Made, parse_record, record_text
from fglaudit.execution.run_cell import run_cell
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.quantities.rows.examples import MOST_ENTRIES, RowExample, row_examples
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import score_rows

NODES = torch.tensor([4, 7, 9])
TRUTH = torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
REBUILT = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]])


def examples(truth: Tensor, rebuilt: Tensor, kind: FeatureKind, known: Tensor = NODES) -> tuple[RowExample, ...]:
    game = Game.about(NODES, truth, kind)
    filled = Reconstruction(rebuilt, NODES, torch.ones(len(NODES)))
    kept = torch.isin(NODES, known)
    given = Reconstruction(rebuilt[kept], NODES[kept], torch.ones(int(kept.sum())))
    scores = score_rows(rebuilt, torch.ones(len(NODES), dtype=torch.bool), truth, kind)
    return row_examples([game], [filled], [given], scores)


def test_words_that_are_right_missed_and_wrong() -> None:
    best, median, worst = examples(TRUTH, REBUILT, FeatureKind.BINARY, known=torch.tensor([4, 7]))
    assert (best.which, best.node, best.score, best.exact) == ("best", 7, 1.0, True)
    assert best.entries == ((1, 1.0, 1.0, True), (2, 1.0, 1.0, True))
    assert (median.node, median.exact, median.guessed) == (4, False, False)
    assert median.entries == ((0, 1.0, 1.0, True), (1, 1.0, 0.0, False))
    assert (worst.node, worst.score, worst.guessed) == (9, 0.0, True)
    assert [right for *_, right in worst.entries] == [False] * 4


def test_real_values_stand_side_by_side_the_largest_first() -> None:
    truth = torch.tensor([[0.5, -2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    best, *_, worst = examples(truth, truth + torch.tensor([[0.0], [0.5], [-3.0]]), FeatureKind.REAL)
    assert not best.binary and best.entries == ((1, -2.0, -2.0, True), (0, 0.5, 0.5, True))
    assert worst.node == 9 and worst.entries[0] == (0, 0.0, -3.0, False)


def test_rows_that_nobody_is_said_to_own_are_not_shown() -> None:
    game = Game.about(NODES, TRUTH, FeatureKind.BINARY)
    unowned = Reconstruction(REBUILT, torch.full((3,), -1), torch.ones(3))
    scores = score_rows(REBUILT, torch.ones(3, dtype=torch.bool), TRUTH, FeatureKind.BINARY)
    assert row_examples([game], [unowned], [unowned], scores) == ()


def test_they_are_bounded_and_survive_a_record() -> None:
    truth = torch.ones((3, 3 * MOST_ENTRIES))
    found = examples(truth, torch.zeros_like(truth), FeatureKind.BINARY)
    assert all(len(one.entries) == MOST_ENTRIES and one.more == 2 * MOST_ENTRIES for one in found)
    assert [RowExample.from_json(json.loads(json.dumps(one.to_json()))) for one in found] == list(found)
    for damage in ({"which": "first"}, {"node": -1}, {"score": 7.0}, {"entries": [[1, 2]]}, {"exact": 1}, {"x": 1}):
        with pytest.raises(ValueError):
            RowExample.from_json({**found[0].to_json(), **damage})


def test_the_true_rows_of_a_cell_are_those_of_its_graph() -> None:
    cell = suite(attacks=["row-space", "row-presence"]).cells()[0]
    record = run_cell(cell, suite="small", device=torch.device("cpu"))
    assert set(record.examples) == {"client:each||row-space"}  # only rows, and only where an attack ran
    x = cell.dataset.load().x
    stored, _ = parse_record(record_text(record, Made("0.1.0", 1)).encode(), record.cell)
    assert stored.examples == record.examples
    for one in map(RowExample.from_json, stored.examples["client:each||row-space"]):
        held = {column for column, true, *_ in one.entries if true}
        assert held == set(x[one.node].nonzero().squeeze(1).tolist())
