"""Rows two hops away from hidden states: those found are right, and nobody is named whose rows were not sent."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.boundaries.hidden_state_rows import HiddenStateRows
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Reconstruction
from fglaudit.payloads import RawFeatures
from fglaudit.protocols.distributed_gcn.bds_gcn import BDSGCN
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages, planted_flaw
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer, View

CLIENT = Observer(parties=(0,), topology=True)


def real_valued(graph: FederatedGraph) -> FederatedGraph:
    x = torch.randn(graph.x.shape, generator=derive(0, "real"))
    return dataclasses.replace(graph, x=x, features=FeatureKind.REAL)


def attacked(view: View) -> Reconstruction:
    found = HiddenStateRows().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    return found


def sent_nodes(run: Run) -> torch.Tensor:
    """Return the nodes whose rows client 0 was sent in the clear."""
    found = []
    for batch in run.view(CLIENT).messages.of(RawFeatures):
        assert isinstance(batch.payload, RawFeatures)
        found.append(batch.payload.nodes[(batch.receivers == 0)[batch.entry_messages()]])
    return torch.cat(found)


@pytest.mark.parametrize("real", [False, True])
def test_rows_two_hops_away_are_found(real: bool) -> None:
    """A node's hidden states show the row of its one missing neighbour; no row found is wrong."""
    graph = example_graph(nodes=120, clients=5)
    graph = real_valued(graph) if real else graph
    run = record(DistributedGCN(rounds=24), graph)
    found = attacked(run.view(CLIENT))
    new = found.nodes[~torch.isin(found.nodes, sent_nodes(run))]
    assert len(new) >= (10 if real else 20)
    assert len(torch.unique(found.nodes)) == len(found.nodes)
    torch.testing.assert_close(found.rows, graph.x[found.nodes], atol=2e-3, rtol=0)


def test_noise_names_nobody() -> None:
    run = record(DistributedGCN(rounds=6), example_graph(nodes=120, clients=5))
    view = run.view(CLIENT)
    found = attacked(dataclasses.replace(view, messages=NoiseMessages(view.messages, seed=0)))
    assert torch.equal(found.nodes.sort().values, torch.unique(sent_nodes(run)))


@pytest.mark.parametrize("features", [2, 24])
def test_self_test_passes(features: int) -> None:
    run = record(DistributedGCN(rounds=2), example_graph(nodes=80, features=features, clients=4))
    for observer in (CLIENT, Observer(parties=(0, 2), topology=True, auxiliary=0.1)):
        assert planted_flaw(HiddenStateRows(), run.view(observer), derive(0, "self-test"), CPU) is None


def test_self_test_passes_on_real_valued_rows() -> None:
    run = record(DistributedGCN(rounds=2), real_valued(example_graph(nodes=80, clients=4)))
    assert planted_flaw(HiddenStateRows(), run.view(CLIENT), derive(0, "self-test"), CPU) is None


def test_refusals_say_why() -> None:
    graph, attack = example_graph(), HiddenStateRows()
    run = record(DistributedGCN(rounds=2), graph)
    for observer, why in (
        (Observer(parties=(0,)), "grant topology"),
        (Observer(parties=(-1,)), "no hidden state"),
    ):
        refused = attack.unsupported(run.view(observer))
        assert refused is not None and why in refused
    refused = attack.unsupported(record(BDSGCN(rounds=2), graph).view(CLIENT))
    assert refused is not None and "took part" in refused
