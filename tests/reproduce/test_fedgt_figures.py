"""FedGT's figures by ``fglaudit reproduce``: what rows train, and how curves, similarities and budgets are read."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Trained
from fglaudit.partition import PartitionSpec
from fglaudit.partition.facts import label_heterogeneity, label_similarity
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.hybrid_protocol import HybridProtocol
from fglaudit.reproduce import matrices, run
from fglaudit.reproduce.measuring import measure, rows_of
from fglaudit.reproduce.papers import fedgt, fedgt_budget, fedgt_similarity
from fglaudit.reproduce.papers.fedgt_methods import NOISY_UPDATES
from fglaudit.reproduce.papers.fedgt_rows import BUDGETS, CLUSTERS, CORRELATION, LABELS, OWN_WEIGHT
from fglaudit.reproduce.printing.heat_maps import heat_maps
from fglaudit.reproduce.printing.table import write
from fglaudit.reproduce.published import AT_THEIR_RATE, BY_THEIR_CODE, Published
from fglaudit.reproduce.run import reproduce
from fglaudit.reproduce.trainings import Measured, trained
from fglaudit.testing import example_graph, record

CPU = torch.device("cpu")


def changed(protocol: Any, other: Any) -> dict[str, Any]:
    """Return the fields in which ``other`` differs from ``protocol``."""
    names = [field.name for field in fields(protocol)]
    return {name: getattr(other, name) for name in names if getattr(protocol, name) != getattr(other, name)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FederatedGraph:
    """Have every row trained on three small clients in place of its data."""
    graph = example_graph()
    monkeypatch.setattr(PartitionSpec, "apply", lambda *_: graph)
    monkeypatch.setattr(DatasetSpec, "load", lambda *_: graph)
    return graph


def row_of(table: str, **wanted: str) -> Published:
    return next(row for row in rows_of(table) if wanted.items() <= row.key.items())


def test_clip_and_scale_of_a_setting_are_those_of_the_noise() -> None:
    swept = [row for row in rows_of("fedgt-figure3") if "clip=" in row.setting]
    seen = set()
    for row in swept:
        what = fedgt.training(row, None)
        assert isinstance(what.defense, ClippedLaplace) and what.protocol == FedGT()
        assert row.setting == f"non-overlapping, clip={what.defense.clip}, scale={what.defense.scale}"
        assert what.defense.on == ("GlobalNodes", "ModelUpdate")[: 2 if row.method == NOISY_UPDATES else 1]
        seen.add(what)
    assert len(seen) == len(swept) == 24
    assert fedgt.training(row_of("fedgt-table1", method="FedGT"), None).defense == fedgt.NOISE


def test_ways_to_sample_differ_in_nothing_but_the_candidates() -> None:
    plain = FedGT()
    ways = {
        row.method: changed(plain, fedgt.protocol(row)) for row in rows_of("fedgt-figure7") if row.dataset == "cora"
    }
    assert list(ways.values()) == [
        {},
        {"sampling": "graphsage"},
        {"sampling": "attribute"},
        {"sampling": "attribute", "candidates": 512},
    ]
    assert plain.sampling == "ppr" and plain.neighbors == 16


@pytest.mark.parametrize("reading", ["", AT_THEIR_RATE, BY_THEIR_CODE])
def test_ablations_take_one_module_away(reading: str) -> None:
    rows = [row for row in rows_of("fedgt-figure9") if row.dataset == "photo" and row.method.endswith(reading)]
    whole, *without = (fedgt.training(row, None) for row in rows if reading or "," not in row.method)
    assert isinstance(whole.protocol, HybridProtocol)
    assert [changed(whole.protocol, each.protocol) for each in without] == [
        {"global_attention": False},
        {"similarity": "fedavg"},
    ]
    assert all(replace(each, protocol=whole.protocol) == whole for each in without)


def test_points_of_a_curve_are_the_rounds_of_one_training(
    small: FederatedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[FedGT] = []
    train = FedGT.train

    def counted(self: FedGT, *args: Any, **options: Any) -> Trained:
        asked.append(self)
        return train(self, *args, **options)

    monkeypatch.setattr(FedGT, "train", counted)
    monkeypatch.setattr(fedgt, "CURVE", 6)
    rows = [row for row in rows_of("fedgt-figure5") if (row.dataset, row.method) == ("photo", "FedGT")]
    found = {row.setting: measure(row, 2, None) for row in rows}
    assert [(each.rounds, each.local_epochs) for each in asked] == [(6, 2)]
    expected = trained(fedgt.training(rows[0], None), 2)[0].accuracy.nanmean(1)
    for wanted in (1, 5):
        point = found[f"non-overlapping, round={wanted}"]
        assert isinstance(point, Measured) and point.value == pytest.approx(100 * float(expected[wanted - 1]))
    assert len(set(expected.tolist())) > 1
    assert "from 1 to 6" in str(found["non-overlapping, round=10"])


def test_budgets_are_those_of_the_defense_after_a_training(small: FederatedGraph) -> None:
    for method in ("FedGT", NOISY_UPDATES):
        rows = {row.metric: row for row in rows_of("fedgt-figure8") if row.method == method}
        row = rows[BUDGETS[2]]
        protocol, noise = fedgt.protocol(row, rounds=2), fedgt.noise_of(row)
        stated = record(protocol, small, noise).session.guarantee()
        per_number, in_a_round, in_all = (fedgt_budget.figure(rows[metric], None).value for metric in BUDGETS)
        assert per_number == pytest.approx(2 * noise.clip / noise.scale) == row.mean == stated.epsilon_claimed
        assert in_all == pytest.approx(100 * in_a_round)
        if method == NOISY_UPDATES:
            assert stated.epsilon_accounted == pytest.approx(2 * in_a_round)
        else:
            assert f"GlobalNodes alone: epsilon {2 * in_a_round:.4g}" in stated.mechanism
            assert in_a_round == pytest.approx(1280 * per_number)


def test_similarities_are_those_of_the_round_that_is_asked_for(small: FederatedGraph) -> None:
    row = row_of("fedgt-figure2", method="FedGT", metric=CORRELATION)
    quick = replace(row, setting="overlapping, rounds=3, round=2")
    outcome, _ = trained(fedgt.training(quick, None), 2)
    weights = outcome.matrices["personal_weights"][1].double()
    found = measure(quick, 2, None)
    assert isinstance(found, Measured) and found.matrix is not None and torch.equal(found.matrix, weights)
    off = [(i, j) for i in range(3) for j in range(3) if i != j]
    first, second = ([float(each[i, j]) for i, j in off] for each in (weights, label_similarity(small)))
    assert found.value == pytest.approx(float(torch.corrcoef(torch.tensor([first, second]))[0, 1]), abs=1e-6)
    own = measure(replace(quick, metric=OWN_WEIGHT), 2, None)
    assert isinstance(own, Measured) and own.value == pytest.approx(float(weights.diagonal().mean()))
    mean = measure(replace(quick, metric=OWN_WEIGHT, setting="overlapping, rounds=3"), 2, None)
    assert isinstance(mean, Measured) and mean.value == pytest.approx(float(outcome.series["own_weight"].mean()))
    assert mean.value != own.value


def test_a_matrix_of_label_distributions_needs_no_training(
    small: FederatedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedGT, "train", None)
    found = measure(row_of("fedgt-figure2", method=LABELS), 2, None)
    assert isinstance(found, Measured) and found.matrix is not None
    off = ~torch.eye(3, dtype=torch.bool)
    assert float(found.matrix[off].mean()) == pytest.approx(1 - label_heterogeneity(small))


def test_groups_are_five_clients_of_one_part_and_a_client_itself_does_not_count() -> None:
    matrix = torch.full((10, 10), 2.0)
    matrix[:5, :5] = matrix[5:, 5:] = 3.0
    matrix.fill_diagonal_(100.0)
    assert fedgt_similarity.cluster_ratio(matrix) == pytest.approx(1.5)
    assert fedgt_similarity.correlation(matrix, matrix.clone().fill_diagonal_(-5.0)) == pytest.approx(1.0)


def invented(row: Published, seed: int, root: str | None, device: torch.device) -> Measured:
    if row.metric not in (CORRELATION, CLUSTERS):
        return Measured(1.0)
    return Measured(1.0, matrix=torch.arange(9.0).view(3, 3) + seed + len(row.method))


def test_matrices_are_kept_beside_the_table_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "measure", invented)
    measured = reproduce("fedgt-figure2", tmp_path, seeds=2)
    monkeypatch.setattr(run, "measure", None)  # all is stored
    again = reproduce("fedgt-figure2", tmp_path, seeds=2)
    assert [row.values for row in again] == [row.values for row in measured]
    files = sorted((tmp_path / matrices.FOLDER).iterdir())
    methods = list(dict.fromkeys(row.row.method for row in again))
    assert len(files) == 2 * len(methods) == 12
    kept = matrices.stored(tmp_path, [row.row for row in again], range(2, 12))
    for (label, matrix), method in zip(kept.items(), methods, strict=True):
        assert label.startswith(method) and torch.equal(matrix, torch.arange(9.0).view(3, 3) + 2 + len(method))
    path = write("fedgt-figure2", again, tmp_path)[-1]
    assert path.name == "heat_maps.svg" and path.read_text().count("<rect x=") == 9 * len(methods)
    ElementTree.parse(path)
    files[0].write_text("1.0,2.0\n")
    with pytest.raises(FglauditError, match=r"as many numbers a line as lines; .*remove it"):
        write("fedgt-figure2", again, tmp_path)


def test_tables_without_matrices_have_no_heat_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "measure", invented)
    paths = write("fedgt-figure7", reproduce("fedgt-figure7", tmp_path, quick=True), tmp_path)
    assert [path.name for path in paths] == ["table.md", "table.csv", "table.svg"]


def test_a_client_with_itself_does_not_bleach_a_heat_map() -> None:
    drawn = heat_maps("title", {"a < b": torch.tensor([[9.0, 0.0], [1.0, 5.0]])})
    assert re.findall(r'<rect x=.* fill="(#\w+)"', drawn) == ["#1e3a8a", "#ffffff", "#1e3a8a", "#1e3a8a"]
    assert "others 0 (white) to 1, itself 7" in drawn and "a &lt; b" in drawn
    assert "NaN" not in heat_maps("one", {"alone": torch.ones(1, 1)})
