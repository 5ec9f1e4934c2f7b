"""The data sets of GFL-APPNP: their statistics, their splits, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import pytest
import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_tasks import CsbmTask, balanced_connected, draw_task
from fglaudit.datasets.subcora_published import subcora_published
from fglaudit.errors import FglauditError
from fglaudit.graph import Graph, canonical_edges, components
from fglaudit.partition import PartitionSpec
from fglaudit.rng import derive

ROOT = Path(os.environ.get("FGLAUDIT_DATA", "../shared/data"))
NAMES = ("csbm-dnc", "csbm-snc", "csbm-sc")


def masks(graph: Graph) -> list[torch.Tensor]:
    assert graph.train is not None and graph.val is not None and graph.test is not None
    return [graph.train, graph.val, graph.test]


def induced_is_connected(graph: Graph, nodes: torch.Tensor) -> bool:
    kept = nodes[graph.edge_index].all(0)
    label = components(graph.edge_index[:, kept], graph.num_nodes)
    return bool((label[nodes] == label[nodes][0]).all())


@pytest.mark.parametrize("name", NAMES)
def test_shapes_splits_and_connectivity_are_the_papers(name: str) -> None:
    graph = DatasetSpec(name).load()
    train, val, test = masks(graph)
    assert int(components(graph.edge_index, graph.num_nodes).max()) == 0
    assert bool((train.long() + val.long() + test.long() == 1).all())
    if name == "csbm-sc":
        assert graph.x.shape == (50, 120, 100) and graph.y.shape == (50, 120)
        assert [set(m.sum(1).tolist()) for m in (train, val, test)] == [{10}, {10}, {100}]
    else:
        assert graph.x.shape == ((200, 100) if name == "csbm-dnc" else (200, 40, 100)) and graph.y.shape == (200,)
        assert [int(m.sum()) for m in (train, val, test)] == [20, 20, 160]
        assert int(graph.y[train].sum()) == 10 and induced_is_connected(graph, train)


def test_edges_follow_the_block_model() -> None:
    """Over 40 draws the expected degrees inside and across classes are (d +- lambda sqrt(d)) / 2, less a node's own
    place."""
    inside = across = 0.0
    for draw in range(40):
        graph = draw_task("csbm-dnc", CsbmTask(dimensions=1), draw)
        same = graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]
        inside += float(same.sum()) / graph.num_nodes / 40
        across += float((~same).sum()) / graph.num_nodes / 40
    swing = 2 * math.sqrt(8)
    assert inside == pytest.approx((8 + swing) / 2, rel=0.06)
    assert across == pytest.approx((8 - swing) / 2, rel=0.06)


def test_features_have_the_stated_signal_and_noise() -> None:
    graph = draw_task("csbm-snc", CsbmTask(samples=400, feature_signal=50.0, dimensions=20))
    sign = (2 * graph.y - 1).view(-1, 1, 1)
    direction = (graph.x * sign).mean((0, 1)) / math.sqrt(50 / 200)
    assert float(direction.norm()) == pytest.approx(1.0, rel=0.5), "u has expected norm 1"
    noise = graph.x - sign * math.sqrt(50 / 200) * direction
    assert float(noise.std()) == pytest.approx(1 / math.sqrt(20), rel=0.01)


def test_labels_of_supervised_samples_follow_the_tag() -> None:
    graph = draw_task("csbm-sc", CsbmTask(samples=1200, dimensions=2))
    share = graph.y.double().mean(1)
    assert bool((((share - 0.3).abs() < 0.07) | ((share - 0.7).abs() < 0.07)).all())


def test_draws_differ_repeat_and_can_share_a_topology() -> None:
    first, again, other = (DatasetSpec("csbm-dnc", draw=d).load() for d in (1, 1, 2))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)
    fixed = [draw_task("csbm-dnc", CsbmTask(topology=7), draw) for draw in (0, 1)]
    assert torch.equal(fixed[0].edge_index, fixed[1].edge_index) and not torch.equal(fixed[0].x, fixed[1].x)
    assert all(torch.equal(a, b) for a, b in zip(masks(fixed[0]), masks(fixed[1]), strict=True))


def test_components_by_hand() -> None:
    edges = canonical_edges(torch.tensor([[0, 5, 2], [5, 1, 3]]), 6)
    assert components(edges, 6).tolist() == [0, 0, 1, 1, 2, 0]


def test_growing_a_balanced_set_can_fail() -> None:
    edges = canonical_edges(torch.tensor([[0, 2], [1, 3]]), 4)
    labels = torch.tensor([0, 0, 1, 1])
    assert all(balanced_connected(edges, labels, 2, derive(seed, "grow")) is None for seed in range(5))


@pytest.mark.parametrize(
    ("task", "word"),
    [
        (CsbmTask(nodes=4), "nodes"),
        (CsbmTask(degree=300.0), "degree"),
        (CsbmTask(graph_signal=3.0), "graph_signal"),
        (CsbmTask(feature_signal=-1.0), "feature_signal"),
        (CsbmTask(samples=5), "samples"),
        (CsbmTask(dimensions=0), "dimensions"),
    ],
)
def test_parameters_out_of_range_are_refused(task: CsbmTask, word: str) -> None:
    with pytest.raises(FglauditError, match=word):
        DatasetSpec("csbm-dnc", task=task)


def test_a_graph_that_never_connects_is_refused() -> None:
    with pytest.raises(FglauditError, match="connected"):
        draw_task("csbm-dnc", CsbmTask(degree=0.5, graph_signal=0.0))


def test_parameters_belong_to_their_sets() -> None:
    with pytest.raises(FglauditError, match="task parameters belong"):
        DatasetSpec("csbm", task=CsbmTask())
    with pytest.raises(FglauditError, match="draw counts"):
        DatasetSpec("csbm", draw=1)


def test_samples_are_split_at_random_within_every_node() -> None:
    spec = DatasetSpec(
        "csbm-sc", task=CsbmTask(nodes=12, samples=20, dimensions=3), split="random", train=0.2, val=0.1, test=0.7
    )
    graph = spec.load()
    federated = PartitionSpec("per-node").apply(graph, spec, derive(0, "partition"))
    counts = [[int(mask.sum()) for mask in masks] for masks in (federated.train, federated.val, federated.test)]
    assert counts == [[4] * 12, [2] * 12, [14] * 12]
    assert federated.client(3).train.shape == (1, 20)
    unlabelled = dataclasses.replace(graph, y=torch.where(torch.arange(20) < 10, graph.y, -1))
    half = PartitionSpec("per-node").apply(unlabelled, spec, derive(0, "partition"))
    assert not bool(half.train[0][:, 10:].any()) and int(half.train[0].sum()) == 2


@pytest.mark.skipif(not (ROOT / "planetoid").is_dir(), reason=f"needs Cora's raw files under {ROOT}")
def test_subcora_is_what_the_paper_describes() -> None:
    graph = DatasetSpec("subcora", root=str(ROOT)).load()
    train, val, test = masks(graph)
    assert graph.x.shape == (300, 1433) and 30 <= int(train.sum()) <= 50 and int(val.sum()) == int(train.sum())
    assert bool((train.long() + val.long() + test.long() == 1).all())
    counts = torch.bincount(graph.y[train], minlength=7).double()
    assert int(counts.min()) >= 1 and float(counts.std(correction=0)) <= 2.5
    assert induced_is_connected(graph, train)
    assert int(components(graph.edge_index, 300).max()) == 0
    cora = DatasetSpec("cora", root=str(ROOT)).load()
    rows = {tuple(row.nonzero().flatten().tolist()) for row in cora.x}
    assert all(tuple(row.nonzero().flatten().tolist()) in rows for row in graph.x)


@pytest.mark.skipif(not (ROOT / "planetoid").is_dir(), reason=f"needs Cora's raw files under {ROOT}")
def test_the_authors_subgraphs_are_as_the_paper_describes_them() -> None:
    """Other seeds or component numbers would not give training sets of the paper's kind 20 times."""
    apart = 0
    for draw in range(20):
        graph = DatasetSpec("subcora-published", root=str(ROOT), draw=draw).load()
        train, val, test = masks(graph)
        assert graph.num_nodes == 300 and 30 <= int(train.sum()) <= 50 and int(val.sum()) == int(train.sum())
        assert bool((train.long() + val.long() + test.long() == 1).all())
        counts = torch.bincount(graph.y[train], minlength=7).double()
        assert int(counts.min()) >= 1 and float(counts.std(correction=0)) <= 2.5
        assert induced_is_connected(graph, train)
        apart += int(components(graph.edge_index, 300).max()) > 0
    assert apart == 20


def test_a_draw_that_the_authors_did_not_make() -> None:
    with pytest.raises(FglauditError, match="0 to 35"):
        subcora_published(DatasetSpec("csbm-cora").load(), 36)
