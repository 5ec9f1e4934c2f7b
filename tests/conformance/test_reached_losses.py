"""Losses see as far as `examples` state, of rows and of edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.redteam.protocol_lies import DegreesUnstated, FewerHops
from fglaudit.conformance.reached_losses import farther_losses
from fglaudit.graph import canonical_edges
from fglaudit.interfaces import FederatedProtocol
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.rng import derive
from fglaudit.testing import check_protocol, example_graph

GRAPH = example_graph(nodes=200, features=4, clients=2)
UNSTATED = DegreesUnstated(hops=0, rounds=1)


def test_degrees_that_enter_weights_unstated_are_told() -> None:
    said = farther_losses(UNSTATED, GRAPH)
    assert "weights that do not depend on degrees, so that the edge between" in said
    assert farther_losses(UNSTATED, GRAPH, most=100) == ""
    with pytest.raises(AssertionError, match="weights that do not depend on degrees"):
        check_protocol(UNSTATED)


def test_rows_that_reach_farther_than_stated_are_told() -> None:
    assert "losses see 0 hops far" in farther_losses(FewerHops(rounds=1), GRAPH)


@pytest.mark.parametrize(
    "protocol",
    [FedGCN(hops=0, rounds=1), FedGCN(hops=2, rounds=1), GCN(rounds=1), GAT(rounds=1), FedAvgSage(rounds=1)],
    ids=lambda protocol: protocol.name,
)
def test_honest_statements_pass(protocol: FederatedProtocol) -> None:
    assert farther_losses(protocol, GRAPH) == ""


def test_edges_that_enter_what_is_sent_besides_are_left_alone() -> None:
    assert farther_losses(StructureOnly(hops=(2,), width=48, rounds=1, features_at_home="own-subgraph"), GRAPH) == ""


@pytest.mark.parametrize("seed", [1, 15])
def test_draws_that_depend_on_how_many_edges_there_are_accuse_nobody(seed: int) -> None:
    assert farther_losses(FedGCN(hops=0, rounds=1, dropout=0.5), example_graph(seed=seed)) == ""


def test_rows_that_reach_much_farther_are_told_on_a_dense_graph() -> None:
    drawn = torch.randint(300, (2, 4500), generator=derive(0, "dense"))
    dense = canonical_edges(drawn[:, drawn[0] != drawn[1]], 300)
    graph = replace(example_graph(nodes=300, features=4, clients=2), edge_index=dense)
    assert "the row of node" in farther_losses(FewerHops(rounds=1), graph)
