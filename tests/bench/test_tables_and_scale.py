"""The long measurements' own parts: a table that survives a kill, a canonical random graph, a checked aggregation."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from fglaudit.graph import canonical_edges
from fglaudit.reproduce.measurements import Table

ROOT = Path(__file__).resolve().parents[2]


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import from the repository's top level, which is not on the path when pytest runs as a command of its own."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(name)


def test_table_goes_on_after_a_kill(tmp_path: Path) -> None:
    table = Table(tmp_path / "deep" / "t.csv", ("method", "seed"), ("accuracy",))
    table.add({"method": "a", "seed": 0, "accuracy": 0.5})
    table.add({"method": "a", "seed": 1, "accuracy": 0.25})
    table.path.write_text(table.path.read_text() + "a,2,0.1")  # cut off inside the value
    assert table.has({"method": "a", "seed": 1})
    assert not table.has({"method": "a", "seed": 2})
    table.add({"method": "a", "seed": 2, "accuracy": 0.125})
    assert [row["accuracy"] for row in table.rows()] == ["0.5", "0.25", "0.125"]


def test_random_edges_are_canonical(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = module("bench.cost.sums", monkeypatch)
    edges = scale.random_edges(50, 400, np.random.default_rng(0))
    assert edges.shape == (2, 800)
    assert torch.equal(edges, canonical_edges(edges, 50))


def test_scale_measurement_checks_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = module("bench.cost.sums", monkeypatch)
    figures = scale.measure(nodes=400, edges=3000, features=8, clients=4)
    assert set(figures) == set(scale.VALUES)


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_large_training_splits_its_nodes_and_names_its_costs(monkeypatch: pytest.MonkeyPatch, hops: int) -> None:
    large = module("bench.cost.large_training", monkeypatch)
    size = large.Size(nodes=600, edges=3000, clients=4, features=10, classes=3, rounds=5)
    graph = large.labelled_graph(size)
    masks = [torch.cat(parts) for parts in (graph.train, graph.val, graph.test)]
    assert torch.equal(torch.stack(masks).sum(0), torch.ones(600, dtype=torch.long))
    assert 0.03 < masks[0].float().mean() < 0.13
    figures = large.measure(size, hops, threads=1, device=torch.device("cpu"))
    assert set(figures) == set(large.VALUES)
    assert float(figures["seconds_per_round"]) >= 0 and float(figures["peak_rss_gb"]) > 0
    assert 0.2 < float(figures["accuracy"]) < 1
