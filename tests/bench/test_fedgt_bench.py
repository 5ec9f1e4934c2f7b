"""FedGT's long measurements: choices on validation nodes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fglaudit.reproduce import fedgt
from fglaudit.testing import example_graph

ROOT = Path(__file__).resolve().parents[2]


def test_choices_are_made_on_validation_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # not on the path when pytest runs as a command of its own
    choices = importlib.import_module("bench.fedgt_choices")
    planned = list(choices.choices())
    assert all(choice.seed < fedgt.SEEDS[0] for choice in planned)
    assert len({tuple(choice.key().values()) for choice in planned}) == len(planned)
    small = {"rounds": 2, "hidden": 8, "heads": 2}
    for choice in (planned[0], planned[-1]):
        row = choices.measure(choice._replace(settings=choice.settings | small), example_graph())
        assert set(row) == set(choices.VALUES) and 0 <= float(row["validation"]) <= 1
        assert bool(row["used_global_nodes"]) == (choice.method == "fedgt")
