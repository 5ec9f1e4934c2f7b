"""Membership of nodes and edges in training graphs: statistics by hand, and that it runs and goes on."""

from __future__ import annotations

from pathlib import Path

import torch

from bench.membership import graphs as membership_graphs
from bench.membership import nodes as membership
from fglaudit.attacks.models.likelihood_ratio import scaled_confidence
from fglaudit.graph import Graph
from fglaudit.nn.gcn_ensemble import EnsembleSettings, SharedGraph, ensemble_logits
from fglaudit.reproduce.measurements import Table
from fglaudit.rng import derive
from fglaudit.testing import example_graph

SMALL = EnsembleSettings(hidden=4, steps=20, learning_rate=0.05)


def graph() -> Graph:
    made = example_graph(nodes=60, features=30)
    return Graph(made.x, made.y, made.edge_index, "small")


def test_an_edge_s_gain_is_that_of_a_graph_of_two_nodes() -> None:
    whole, draw = graph(), derive(0, "weights")
    weights = {"0": torch.randn(3, 30, 4, generator=draw), "1": torch.randn(3, 4, 3, generator=draw)}
    edges = torch.tensor([[0, 5], [7, 2]])
    found = membership_graphs.gain(weights, whole, edges)
    for place, (i, j) in enumerate(edges.T.tolist()):
        x, y, pair = whole.x[[i, j]], whole.y[[i, j]], torch.tensor([[0, 1], [1, 0]])
        joined, apart = (
            scaled_confidence(ensemble_logits(SharedGraph.of(x, e), weights), y).sum(1) for e in (pair, pair[:, :0])
        )
        torch.testing.assert_close(found[:, place], joined - apart, rtol=1e-4, atol=1e-4)


def test_members_are_shared_out_and_a_target_is_attacked_without_its_partner() -> None:
    for make in (membership_graphs.of_nodes, membership_graphs.of_edges):
        asked = make(graph(), 6, SMALL, 0)
        assert torch.equal(asked.members[0::2], ~asked.members[1::2])
        changed = asked.statistic.clone()
        changed[1] += 1
        other = asked._replace(statistic=changed)
        for first, second in zip(*(membership_graphs.scores(a, 0, "lira-online") for a in (asked, other)), strict=True):
            assert torch.equal(first, second)


def test_it_writes_a_row_per_target_once(tmp_path: Path) -> None:
    """A second run measures nothing again."""
    for _ in range(2):
        membership_graphs.run(tmp_path, None, "csbm-cora", EnsembleSettings(hidden=4, steps=2), models=4)
    rows = Table(tmp_path / "membership_graphs.csv", membership.KEY, membership.VALUES).rows()
    assert len(rows) == 4 * sum(len(attacks) for attacks in membership_graphs.ATTACKS.values())
