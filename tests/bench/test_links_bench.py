"""The measurement of links: what it compares, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench import links
from fglaudit.datasets import DatasetSpec
from fglaudit.nn.gcn_ensemble import EnsembleSettings
from fglaudit.reproduce.measurements import Table


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SEEDS", 1)
    monkeypatch.setattr(links, "ASKED", 3)
    short = EnsembleSettings(hidden=4, steps=3)
    links.run(tmp_path, None, ("csbm-cora",), short)
    table = Table(tmp_path / "links.csv", links.KEY, links.VALUES)
    assert [row["observer"] for row in table.rows()] == ["model", "predictions", "influence"]
    found = {row["observer"]: float(row["auc"]) for row in table.rows()}
    assert found["influence"] > 0.9  # only nodes within two hops move at all
    before = table.path.read_bytes()
    monkeypatch.setattr(links, "train", None)  # nothing is left to train
    links.run(tmp_path, None, ("csbm-cora",), short)
    assert table.path.read_bytes() == before


def test_random_pairs_are_no_edges() -> None:
    graph = DatasetSpec(name="csbm-cora").load()
    (row, column), (first, second) = links._pairs(graph, 0)
    assert len(row) * 2 == graph.edge_index.shape[1]
    edges = set(zip(row.tolist(), column.tolist(), strict=True))
    assert not edges & set(zip(first.tolist(), second.tolist(), strict=True))
    assert bool((first < second).all()) and isinstance(first, torch.Tensor)
