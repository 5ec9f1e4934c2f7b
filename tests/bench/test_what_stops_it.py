"""The suites of ``bench what-stops-it`` and the table that is made of their runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from report_runs import DEFENSES, clustered_cell, hits_in_clusters, store

from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.reports.records import load_run
from fglaudit.suite.overrides import load_suite

ROOT = Path(__file__).resolve().parents[2]
NONE, DROP, NOISE = DEFENSES


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.what_stops_it.measure")


def test_every_suite_loads_and_has_an_undefended_setting(bench: ModuleType) -> None:
    paths = sorted(bench.FOLDER.glob("*.yaml"))
    assert len(paths) >= 7
    for path in paths:
        suite = load_suite(str(path))
        assert any(type(defense).name == "none" for defense in suite.defenses), path
        assert len(suite.protocols) == 1, path


def test_the_table_shows_what_fresh_seeds_found(bench: ModuleType, tmp_path: Path) -> None:
    loud, quiet = hits_in_clusters([40] * 45), hits_in_clusters([0] * 45)
    cells = [
        clustered_cell({"a": loud}, accuracy_global=0.9),
        clustered_cell({"a": quiet}, defense=DROP, accuracy_global=0.7),
    ]
    folder = store(tmp_path / "run", cells)
    (line,) = bench.table_lines(load_run(folder))
    assert "none of those tried" in line and "0.667" in line
    store(folder / CONFIRMED / "again", [clustered_cell({"a": quiet}, seed=1, defense=DROP, accuracy_global=0.68)])
    (line,) = bench.table_lines(load_run(folder))
    assert "drop-singletons" in line and "90.0" in line and "68.0" in line and "not shown" not in line
    store(folder / CONFIRMED / "more", [clustered_cell({"a": loud}, seed=s, defense=DROP) for s in (1, 2)])
    (line,) = bench.table_lines(load_run(folder))
    assert "**leaks**" in line
