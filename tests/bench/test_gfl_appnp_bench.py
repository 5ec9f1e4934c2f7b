"""GFL-APPNP's long measurements: attacks at the paper's settings."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_attacks_are_measured_at_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    attacks = importlib.import_module("bench.gfl_appnp.attacks")
    cases = list(attacks.cases())
    assert len(cases) == len(set(cases))
    case = attacks.Case("csbm-dnc", "full", 0.5, "jacobian-reading", "server", False, 0)
    assert case in cases
    read = attacks.measure(case, rounds=1, hidden=8)
    assert float(read["exact_rate"]) > 0.95 and float(read["right_node"]) == 1
    assert float(read["scale_error"]) < 1e-3 and float(read["false_claim_rate"]) == 0
    named = attacks.measure(case._replace(attack="label-reading"), rounds=1, hidden=8)
    assert 0 < float(named["label_accuracy"]) <= 1 and named["targets"] == "200"
