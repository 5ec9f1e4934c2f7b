"""The measurement of links: what it compares, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.membership import links
from fglaudit.datasets import DatasetSpec
from fglaudit.graph import canonical_edges
from fglaudit.nn.gcn_ensemble import EnsembleSettings, SharedGraph, ensemble_logits
from fglaudit.nn.weights import gcn_layout, unflatten
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive


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


def test_influence_is_nothing_beyond_two_hops() -> None:
    """A path of six nodes under a GCN of two layers: node 0 moves nodes 0, 1 and 2."""
    path = torch.stack([torch.arange(5), torch.arange(1, 6)])
    graph = canonical_edges(torch.cat([path, path.flip(0)], 1), 6)
    x = torch.rand(6, 4, generator=derive(0, "rows")) + 0.1
    layout = gcn_layout(4, 8, 3, 2)
    weights = unflatten(torch.rand(1, 4 * 8 + 8 * 3, generator=derive(0, "weights")), layout)
    found = links.influences(
        lambda rows: ensemble_logits(SharedGraph.of(rows, graph), weights)[0], x, torch.tensor([0, 3])
    )
    assert found.shape == (2, 6)
    assert bool((found[0, :3] > 0.01).all()) and float(found[0, 3:].max().item()) < 1e-6
    assert bool((found[1, 1:] > 0.01).all()) and float(found[1, 0].item()) < 1e-6


def test_random_pairs_are_no_edges() -> None:
    graph = DatasetSpec(name="csbm-cora").load()
    (row, column), (first, second) = links._pairs(graph, 0)
    assert len(row) * 2 == graph.edge_index.shape[1]
    edges = set(zip(row.tolist(), column.tolist(), strict=True))
    assert not edges & set(zip(first.tolist(), second.tolist(), strict=True))
    assert bool((first < second).all()) and isinstance(first, torch.Tensor)
