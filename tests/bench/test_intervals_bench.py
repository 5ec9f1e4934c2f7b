"""The simulation of intervals: its draws have the truth they claim, every part runs, and a stopped one goes on."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("rate", "beyond", "advantage", "score", "idle", "trainings", "null", "leak")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The measurement lies at the repository's top level, which is not on the path when pytest runs as a command of its
    own."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.intervals.coverage")


@pytest.fixture
def draws(bench: ModuleType) -> ModuleType:
    return importlib.import_module("bench.intervals.draws")


def test_targets_weigh_equally(bench: ModuleType) -> None:
    interval = bench.rate_interval(np.array([90.0, 10, 10, 10, 10]), np.array([90.0, 0, 0, 0, 0]))
    assert interval.value == pytest.approx(90 / 130)


@pytest.mark.parametrize("shape", ["beta", "mixture"])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5])
def test_cluster_rates_have_their_mean_and_correlation(draws: ModuleType, shape: str, correlation: float) -> None:
    rates = draws.cluster_rates(draws.generator("test"), 0.3, correlation, shape, (20000, 5))
    assert rates.mean() == pytest.approx(0.3, abs=0.01)
    assert rates.var() / (0.3 * 0.7) == pytest.approx(correlation, abs=0.02)


@pytest.mark.parametrize("tie", ["independent", "alike", "superset", "copy", "opposed"])
def test_paired_hits_have_their_advantage(draws: ModuleType, tie: str) -> None:
    sizes = draws.cluster_sizes(5, "uneven")
    drawn = draws.paired_hits(draws.generator("test", tie), sizes, 0.4, 0.3, 0.5, tie, 20000)
    targets = 20000 * sizes.sum()
    assert drawn.control.sum() / targets == pytest.approx(0.3, abs=0.01)
    net = (drawn.gained - drawn.lost).sum()
    assert net / (targets - drawn.control.sum()) == pytest.approx(0.1 / 0.7, abs=0.02)
    assert (drawn.lost <= drawn.control).all() and (drawn.gained <= sizes - drawn.control).all()


@pytest.mark.parametrize("control", ["none", "independent", "shared"])
def test_scores_have_their_advantage(draws: ModuleType, control: str) -> None:
    sizes = draws.cluster_sizes(5, "equal")
    drawn = draws.scores(draws.generator("test", control), sizes, 0.5, 0.3, control, 0.25, 4000)
    net = (drawn.gained - drawn.lost).sum()
    found = net / (4000 * sizes.sum() - drawn.control.sum())
    assert found == pytest.approx(draws.score_advantage(0.5, control, 0.25), abs=0.02)


def test_sizes_are_even_or_fall(draws: ModuleType) -> None:
    assert set(draws.cluster_sizes(6, "equal")) == {30.0}
    uneven = draws.cluster_sizes(6, "uneven")
    assert (np.diff(uneven) < 0).all() and uneven.mean() == pytest.approx(30, abs=0.5)


def test_the_plain_t_interval_of_equal_clusters(bench: ModuleType) -> None:
    rivals = importlib.import_module("bench.intervals.rivals")
    means = np.array([[0.2, 0.5, 0.4, 0.9]])
    low, high = rivals.plain_t(means * 10, np.full((1, 4), 10.0))
    reach = student.ppf(0.975, 3) * means.std(ddof=1) / 2
    assert (low[0], high[0]) == pytest.approx((0.5 - reach, 0.5 + reach))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_simulated_and_reported(bench: ModuleType, part: str) -> None:
    cell = next(cell for cell in bench.cells() if cell.part == part)
    results = bench.simulate(cell, 20)
    assert next(iter(results)) == bench.OURS and len(results) >= 2
    assert results == bench.simulate(cell, 20)  # the same numbers again
    rows = [
        {name: str(value) for name, value in {**cell.key(), "method": method, **result._asdict()}.items()}
        for method, result in results.items()
    ]
    assert f"### {part}" in "\n".join(bench.report(rows)) or part in ("null", "leak")


def test_a_stopped_run_goes_on(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [cell for cell in bench.cells() if cell.part == "rate"][:2]
    monkeypatch.setattr(bench, "RUNS", {"rate": 20})
    monkeypatch.setattr(bench, "cells", lambda: iter(few[:1]))
    bench.run(tmp_path)
    simulated, whole = [], bench.simulate

    def noted(cell: object, runs: int) -> object:
        simulated.append(cell)
        return whole(cell, runs)

    monkeypatch.setattr(bench, "simulate", noted)
    monkeypatch.setattr(bench, "cells", lambda: iter(few))
    bench.run(tmp_path)
    assert simulated == few[1:]
