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
from fglaudit.empirical.canaries import covered_nodes
from fglaudit.empirical.judge import judge
from fglaudit.empirical.replaced import replaced_records
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Verdict, Word
from fglaudit.interfaces import Defense, FederatedProtocol, bound
from fglaudit.protocols.private.gap import EDGE, GAP, REPORTING
from fglaudit.protocols.private.private_reports import PrivateReports
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
    session = bound(defense, protocol.context(graph))
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
def test_a_reporting_nodes_guarantee_is_verified(unit: str) -> None:
    found = verdict(GAP(unit=unit, **SHORT), Gaussian(on="EmbeddingSums", unit=unit))
    assert found.word is Word.VERIFIED, found.reason


def test_reports_move_nothing_but_themselves() -> None:
    found = verdict(PrivateReports(hops=(1,), width=0, **SHORT), KAryResponse())
    (fields,) = [audit for audit in found.audits if audit.name == "fields"]
    assert fields.outcome.value == "passed", fields.detail
