"""FedGT's long measurements: the plan of its tables."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from fglaudit.testing import example_graph

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import from the repository's top level, which is not on the path when pytest runs as a command of its own."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.fedgt_tables")


def test_published_figures_have_cases(tables: ModuleType) -> None:
    cases = list(tables.cases(3, tables.DATASETS))
    assert len(cases) == len(set(cases))
    for data in ("cora", "citeseer", "pubmed"):
        for setting, counts in tables.CLIENTS.items():
            for method in ("fedgt", *tables.BASELINES):
                for clients in counts:
                    case = tables.Case(data, setting, clients, method, 2)
                    assert case in cases and case.published() is not None
    compared = {case.method for case in cases if case.setting == "overlapping" and case.dataset == "cora"}
    assert {f"fedgt-{name}" for name in tables.SIMILARITIES} <= compared
    assert all(
        tables.Case(data, setting, 10, method, tables.FIRST_SEED) in cases
        for method, data, setting in tables.PUBLISHED_TEN
    )


def test_a_case_is_measured(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.SETTINGS, "cora", {"rounds": 2, "hidden": 8})
    for method in ("fedgt", "fedgt-fedavg", *tables.BASELINES):
        row = tables.measure(tables.Case("cora", "non-overlapping", 3, method, 0), example_graph())
        assert set(row) == set(tables.VALUES)
        assert 0 <= float(row["accuracy"]) <= 1 and row["round"] in ("1", "2")


def test_preprocessing_is_measured(tables: ModuleType) -> None:
    preprocessing = importlib.import_module("bench.fedgt_preprocessing")
    assert set(preprocessing.PUBLISHED) == set(tables.DATASETS)
    assert 0 < preprocessing.seconds(example_graph()) < 10


def test_weights_are_measured() -> None:
    weights = importlib.import_module("bench.fedgt_weights")
    planned = list(weights.settings(1))
    assert len(set(planned)) == len(planned) and {setting.tau for setting in planned if not setting.noise} >= {
        1,
        5,
        100,
    }
    row = weights.measure(planned[0], example_graph(), rounds=2, hidden=8, heads=2)
    assert set(row) == set(weights.VALUES) and 0 < float(row["own_weight"]) < 1


def test_choices_are_made_on_validation_nodes(tables: ModuleType) -> None:
    choices = importlib.import_module("bench.fedgt_choices")
    planned = list(choices.choices())
    assert all(choice.seed < tables.FIRST_SEED for choice in planned)
    assert len({tuple(choice.key().values()) for choice in planned}) == len(planned)
    small = {"rounds": 2, "hidden": 8, "heads": 2}
    for choice in (planned[0], planned[-1]):
        row = choices.measure(choice._replace(settings=choice.settings | small), example_graph())
        assert set(row) == set(choices.VALUES) and 0 <= float(row["validation"]) <= 1
        assert bool(row["used_global_nodes"]) == (choice.method == "fedgt")
