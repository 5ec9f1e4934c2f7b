"""GFL-APPNP's own graphs and baselines, and how its authors counted."""

from __future__ import annotations

import math

import pytest
import torch
from torch_geometric import nn as pyg

from fglaudit.datasets import CsbmTask, DatasetSpec
from fglaudit.datasets.csbm_tasks import draw_task
from fglaudit.errors import FglauditError
from fglaudit.graph import components
from fglaudit.interfaces import Trained
from fglaudit.nn.weights import fan_in, unflatten
from fglaudit.partition import PartitionSpec
from fglaudit.reproduce.authors_code.gfl_appnp_baselines import PublishedAPPNP, PublishedGAT, PublishedSAGE, attended
from fglaudit.reproduce.papers.gfl_appnp import by_majority
from fglaudit.reproduce.trainings import Training, trained
from fglaudit.rng import derive

THEIRS = CsbmTask(published=True)


@pytest.mark.parametrize(
    ("name", "edges", "ones", "test"),
    [("csbm-dnc", 793, 101, 160), ("csbm-snc", 991, 100, 126), ("csbm-sc", 126, 31, 0)],
)
def test_the_authors_graphs_are_connected_as_are_their_training_sets(
    name: str, edges: int, ones: int, test: int
) -> None:
    graph = draw_task(name, THEIRS)
    assert graph.edge_index.shape[1] == 2 * edges
    assert int(components(graph.edge_index, graph.num_nodes).max()) == 0
    assert graph.train is not None and graph.val is not None and graph.test is not None
    if name == "csbm-sc":
        assert [set(mask.sum(1).tolist()) for mask in (graph.train, graph.val, graph.test)] == [{10}, {10}, {100}]
        return
    assert int(graph.y.sum()) == ones
    assert [int(mask.sum()) for mask in (graph.train, graph.val, graph.test)] == [20, 20, test]
    assert not bool((graph.train & graph.test | graph.val & graph.test | graph.train & graph.val).any())
    label = components(graph.edge_index[:, graph.train[graph.edge_index].all(0)], graph.num_nodes)
    assert int(graph.y[graph.train].sum()) == 10 and len(set(label[graph.train].tolist())) == 1


@pytest.mark.parametrize("name", ["csbm-dnc", "csbm-snc"])
def test_draws_of_an_authors_graph_differ_in_features_alone(name: str) -> None:
    one, other = (DatasetSpec(name, task=THEIRS, draw=draw).load() for draw in (0, 1))
    assert torch.equal(one.edge_index, other.edge_index) and torch.equal(one.y, other.y)
    assert one.test is not None and other.test is not None and torch.equal(one.test, other.test)
    assert not torch.equal(one.x, other.x)


def test_features_of_an_authors_graph_have_the_length_of_theirs() -> None:
    """A node's samples are its tag times one direction, and noise that 8,000 samples average out."""
    graph = draw_task("csbm-snc", THEIRS)
    mean = ((2 * graph.y - 1).view(-1, 1, 1) * graph.x).mean((0, 1)) * math.sqrt(200)
    noise = 200 / 8000  # expected square of what is left of it
    assert float(mean.square().sum()) - noise == pytest.approx(0.9379**2, abs=0.1)


def test_an_authors_graph_goes_with_no_other_size() -> None:
    with pytest.raises(FglauditError, match="published"):
        draw_task("csbm-dnc", CsbmTask(published=True, nodes=100))


def test_first_weights_are_those_of_torchs_linear_layers() -> None:
    layout = {"first": (400, 64), "second": (64, 3)}
    drawn = unflatten(fan_in(layout, derive(0, "weights")).unsqueeze(0), layout)
    for name, (rows, columns) in layout.items():
        linear = torch.nn.Linear(rows, columns, bias=False).weight
        assert float(drawn[name].abs().max()) <= 1 / math.sqrt(rows)
        assert float(drawn[name].std()) == pytest.approx(1 / math.sqrt(3 * rows), rel=0.1)
        assert float(linear.detach().std()) == pytest.approx(float(drawn[name].std()), rel=0.15)


def test_attention_is_torch_geometrics() -> None:
    graph = draw_task("csbm-dnc", THEIRS)
    layer = pyg.GATConv(100, 8, heads=8, bias=False)
    edges = torch.cat([graph.edge_index, torch.arange(200).expand(2, -1)], 1)
    with torch.no_grad():
        expected = layer(graph.x, graph.edge_index)  # adds the loops itself
        found = attended(graph.x, layer.lin.weight.T, layer.att_dst[0], layer.att_src[0], edges)
    assert torch.allclose(expected, found, atol=1e-5)


@pytest.mark.parametrize("kind", [PublishedAPPNP, PublishedSAGE, PublishedGAT])
def test_the_authors_baselines_learn(kind: type[PublishedAPPNP | PublishedSAGE | PublishedGAT]) -> None:
    protocol = kind(rounds=40, local_steps=5, learning_rate=0.5)
    spec = DatasetSpec("csbm-dnc", task=CsbmTask(nodes=80, degree=10.0, graph_signal=3.0, feature_signal=40.0))
    outcome, _ = trained(Training(spec, PartitionSpec("per-node"), protocol), 0)
    assert outcome.whole_test_set > 0.8


def test_a_node_counts_where_most_of_its_samples_are_right() -> None:
    right = torch.tensor([1, 1, 0, 0, 0, 1, 1, 1, 1], dtype=torch.bool)
    nothing = torch.zeros(1)
    assert by_majority(Trained(nothing, nothing, {}, right=right), 3) == pytest.approx(2 / 3)
