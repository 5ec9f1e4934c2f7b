"""Guarantees about edges and reporting nodes are put to the test with records of their own kind."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from fglaudit.context import Release
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.defenses.training.dp_sgd import DpSgd
from fglaudit.empirical.judge import judge
from fglaudit.empirical.replays.canaries import covered_nodes
from fglaudit.empirical.replays.replaced import replaced_records, taken_away
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Verdict, Word
from fglaudit.interfaces import Channel, Defense, FederatedProtocol, Trained
from fglaudit.payloads import SERVER, LabelDistributions, MessageBatch
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.private.gap import EDGE, GAP, REPORTING, RecordUnit
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel


class TooSure(GAP):
    """GAP that forgets that an edge has two ends."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        (release,) = super().releases(graph)
        return (dataclasses.replace(release, gain=1.0),)


class Leaking(GAP):
    """GAP whose clients send rows where they have neighbours alone."""

    @property
    def padded(self) -> bool:
        return False


def verdict(protocol: FederatedProtocol, defense: Defense) -> Verdict:
    graph = example_graph()
    session = defense.bind(protocol.context(graph))
    channel = RecordingChannel(session, graph.num_clients, derive(0, "defense"))
    protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    word, _ = judge(protocol, graph, defense, session, channel.counted, channel.unstated, seed=0, device=CPU)
    return word


def test_records_of_an_edges_guarantee_differ_in_one_edge() -> None:
    graph = example_graph()
    before = {(int(a), int(b)) for a, b in graph.edge_index.T.tolist()}
    changes = []
    for other in replaced_records(graph, "edge", derive(0, "records"), 6):
        after = {(int(a), int(b)) for a, b in other.graph.edge_index.T.tolist()}
        changes.append(len(after) - len(before))
        assert len(before ^ after) in (0, 2) and torch.equal(other.graph.x, graph.x)
    assert -2 in changes and 2 in changes


def test_records_of_reporting_nodes_are_in_no_training_set() -> None:
    graph = example_graph()
    learned = torch.ones(graph.num_nodes, dtype=torch.bool)
    learned[covered_nodes(graph, REPORTING)] = False
    assert bool(learned.any())
    for other in replaced_records(graph, "reporting node", derive(0, "records"), 20):
        changed = (other.graph.x != graph.x).any(1)
        assert not bool((changed & learned).any())


def test_nodes_taken_away_have_few_edges_and_keep_none() -> None:
    graph = example_graph()
    owner, (row, column) = graph.owner(), graph.edge_index
    inside = torch.bincount(row[owner[row] == owner[column]], minlength=graph.num_nodes)
    found = taken_away(graph, 2, derive(0, "records"), 4)
    assert len(found) == 4
    for other in found:
        (node,) = ((other.graph.x != graph.x).any(1)).nonzero().flatten().tolist()
        assert 1 <= int(inside[node]) <= 2 and not bool((other.graph.edge_index == node).any())
        assert other.graph.edge_index.shape[1] == len(row) - 2 * int((row == node).sum())


class EdgesAside(StructureOnly):
    """Codes propagated over edges in the clear, of which nothing is said."""

    def cross_edges(self, graph: FederatedGraph) -> bool:
        return False


def test_a_node_with_its_edges_is_taken_away_where_a_guarantee_names_them() -> None:
    found = verdict(EdgesAside(hops=(1, 2), width=8, rounds=2), DpSgd())
    assert found.word is Word.CLAIMED and "taken away with its edges" in found.reason, found.reason


class Told(FedGCN):
    """Clients send how many of their training nodes are in each class, which no release names."""

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = torch.arange(graph.num_clients)
        held = zip(graph.clients, graph.train, strict=True)
        counts = [torch.bincount(graph.y[nodes[train]], minlength=graph.num_classes) for nodes, train in held]
        sent = LabelDistributions(torch.stack(counts).float())
        channel.send(MessageBatch(0, clients, torch.full_like(clients, SERVER), sent))
        return super().train(graph, channel, rng=rng, device=device)


@pytest.mark.parametrize("defense", [DpSgd(), DpFedAvg(trust="local")])
def test_labels_are_changed_where_a_guarantee_names_them(defense: Defense) -> None:
    found = verdict(Told(hops=0, rounds=2), defense)
    assert found.word is Word.CLAIMED and "other labels of" in found.reason, found.reason
    assert verdict(FedGCN(hops=0, rounds=2), defense).word is Word.VERIFIED


NOISE = Gaussian(on="EmbeddingSums", unit=EDGE)
SHORT: dict[str, Any] = {"encoder_rounds": 1, "rounds": 1}


def test_an_honest_edge_guarantee_is_verified() -> None:
    found = verdict(GAP(**SHORT), NOISE)
    assert found.word is Word.VERIFIED, found.reason
    assert any("one edge moved EmbeddingSums by 1.414" in audit.detail for audit in found.audits)


def test_a_bound_that_forgets_one_end_is_refuted() -> None:
    found = verdict(TooSure(**SHORT), NOISE)
    assert found.word is Word.REFUTED
    assert math.isfinite(found.epsilon or math.nan)


def test_rows_that_show_edges_by_being_there_are_noticed() -> None:
    """The number of rows that a client sends moves with an edge between clients, which no noise hides."""
    assert verdict(Leaking(**SHORT), NOISE).word is not Word.VERIFIED


@pytest.mark.parametrize("unit", [REPORTING])
def test_a_reporting_nodes_guarantee_is_verified(unit: RecordUnit) -> None:
    found = verdict(GAP(unit=unit, **SHORT), Gaussian(on="EmbeddingSums", unit=unit))
    assert found.word is Word.VERIFIED, found.reason


def test_reports_move_nothing_but_themselves() -> None:
    found = verdict(PrivateReports(hops=(1,), width=0, **SHORT), KAryResponse())
    (fields,) = [audit for audit in found.audits if audit.name == "fields"]
    assert fields.outcome.value == "passed", fields.detail
