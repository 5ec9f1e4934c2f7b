"""Small suites that pages name beside their figures."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fglaudit.suite.overrides import load_suite

ROOT = Path(__file__).resolve().parents[2]
SUITES = sorted((ROOT / "bench/suites").glob("*.yaml"))
PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_loads_and_the_page_that_it_names_says_how_to_run_it(path: Path) -> None:
    assert load_suite(str(path)).cells()
    named = [page for page in PAGES if f"docs/{page}" in path.read_text("utf-8")]
    assert named and all(f"fglaudit run bench/suites/{path.name}" in PAGES[page] for page in named)


def test_no_figure_rests_on_a_call_that_nobody_can_repeat() -> None:
    assert not [page for page, text in PAGES.items() if "called from Python" in text]


def test_estimators_stay_below_the_true_epsilon_and_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("bench.epsilon_estimators")
    rng = bench.derive(0, "estimator")
    bounds = [estimator(2.0, 1000, rng) for estimator in bench.ESTIMATORS.values()]
    assert all(0.8 < bound < 2.0 for bound in bounds)
