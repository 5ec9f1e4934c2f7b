"""The table of ``bench what-leaks``: every line is one row of ``findings.csv``."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from report_runs import DEFENSES, PROTOCOLS, make_cell

from fglaudit.errors import FglauditError
from fglaudit.finding import Status
from fglaudit.suite.cell import identity
from fglaudit.suite.overrides import load_suite

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.what_leaks.measure")


def test_every_line_names_settings_and_attacks_of_its_suite(bench: ModuleType) -> None:
    cells: dict[str, list[dict[str, Any]]] = {}
    for row in (row for table in bench.read_tables() for row in table["rows"]):
        suite = load_suite(row["suite"])
        trainings = cells.setdefault(row["suite"], [identity(cell) for cell in suite.cells()])
        named = {column: str(value) for column, value in row.items() if column in trainings[0] and column != "suite"}
        fitting = [one for one in trainings if all(str(one[column]) == value for column, value in named.items())]
        assert len(fitting) == 1, (row, len(fitting))
        assert row["observer"] in {spec.name for spec in suite.observers}, row


def test_a_line_is_one_measured_row(bench: ModuleType) -> None:
    one = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0]).findings[0]
    rows = [
        replace(one, attack="a", metric="exact_rate", value=0.5, control=0.0, advantage_low=0.2, advantage_high=0.75),
        replace(one, attack="b", metric="auc", value=0.75, control=0.5, advantage_low=-0.5, advantage_high=1.0),
        replace(one, attack="c", status=Status.FAILED, reason="no memory"),
    ]
    found = bench.the_finding({"attack": "a"}, rows)
    assert bench.with_interval(found).startswith("**50.0") and bench.with_interval(found).endswith("[20.0, 75.0]")
    assert bench.with_interval(rows[1]) == "**0.750** [0.250, 1.000]"
    refused = (({"attack": "d"}, "0 fit"), ({"dataset": one.dataset}, "3 fit"), ({"attack": "c"}, "no memory"))
    for where, word in refused:
        with pytest.raises(FglauditError, match=word):
            bench.the_finding(where, rows)
