"""k-ary responses: honest ones are verified, and every planted fault is refuted or claimed."""

from __future__ import annotations

import math

import pytest
import torch

from bench.redteam import protocol_lies, report_faults
from bench.redteam.cases import CASES, Case
from bench.redteam.measure import judged
from fglaudit.empirical.estimates.curve_test import power
from fglaudit.empirical.replays.canaries import covered_nodes
from fglaudit.empirical.replays.replaced import replaced_records
from fglaudit.guarantees import Word
from fglaudit.privacy.accounting import Relation, response_event
from fglaudit.privacy.tradeoff import TradeOff, narrowed
from fglaudit.rng import derive
from fglaudit.testing import example_graph

HONEST = [case for case in CASES if not case.broken and "class-reports" in case.name]
BROKEN = [case for case in CASES if case.broken and "class-reports" in case.name]
REFUTED = {
    *("KeepsTooOften", "LiesAreNeighbors", "LiesBySeed", "OneCoinForAll", "TwinsLieTogether", "OneClassBare"),
    *("EverySecondNodeBare", "AnswersAnew", "RowsInOrderOfTruth", "LiesAmongObserved", "LiesByFrequency"),
    *("OnlyOneOfItsClass", "AsManyAsExpected"),
}


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_honest_reports_are_verified(case: Case) -> None:
    result = judged(case, 0)
    if case.name.split()[1] in report_faults.UNSEEN:
        assert result.outcome is Word.CLAIMED and "draw the same numbers" in result.detail
        return
    assert result.outcome is Word.VERIFIED, result.detail
    assert result.epsilon == pytest.approx(2.0, rel=1e-6)
    assert result.power > 0.9


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_broken_reports_are_not_verified(case: Case) -> None:
    result = judged(case, 0)
    assert result.outcome is not Word.VERIFIED
    if case.name.split()[0] in REFUTED:
        assert result.outcome is Word.REFUTED, result.detail


def test_every_fault_is_planted() -> None:
    of_protocols = {name for name, where in protocol_lies.BROKEN if where == "class-reports"}
    planted = {name for name, _ in report_faults.BROKEN} | of_protocols
    assert {case.name.split()[0] for case in BROKEN} == planted >= REFUTED


def test_only_nodes_that_the_guarantee_names_are_replaced() -> None:
    graph = example_graph()
    used = torch.cat([ids[train | val] for ids, train, val in zip(graph.clients, graph.train, graph.val, strict=True)])
    named = covered_nodes(graph, "reporting node")
    assert len(named) and not bool(torch.isin(named, used).any())
    assert len(named) + len(torch.unique(used)) == graph.num_nodes
    for pair in replaced_records(graph, "reporting node", derive(0, "pairs")):
        changed = (pair.graph.x != graph.x).any(1).nonzero().flatten()
        assert bool(torch.isin(changed, named).all())
    everybody = torch.cat(
        [
            (pair.graph.x != graph.x).any(1).nonzero().flatten()
            for pair in replaced_records(graph, "node", derive(0, "pairs"))
        ]
    )
    assert bool(torch.isin(everybody, used).any())


def test_power_is_seen_where_lies_are_rare() -> None:
    """At epsilon 4 of 4 classes the weaker response differs from the stated one at few false alarms alone."""
    stated = TradeOff.of(response_event(1 / (1 + 3 * math.exp(-4)), 4), Relation.REPLACE)
    assert stated.event is not None
    weaker = TradeOff.of(narrowed(stated.event, 1.5), Relation.REPLACE)
    assert power(stated, weaker, 4000, 2.5e-6) > 0.9
    assert power(stated, stated, 4000, 2.5e-6) == 0.0
