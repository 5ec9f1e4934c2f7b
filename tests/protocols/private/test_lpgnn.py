"""LPGNN: what is sent, what the responses do, Drop against a dense formulation, and what is promised."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from fglaudit.attacks.codes.report_labels import ReportLabels
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.defenses.noise.multi_bit import MultiBit
from fglaudit.errors import FglauditError
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.responses import keep_probability, response_matrix
from fglaudit.payloads import SERVER, ClassReports
from fglaudit.privacy.accounting import Relation, epsilon_of, response_event
from fglaudit.protocols.private.lpgnn import LPGNN, neighbours, shares
from fglaudit.structure import Reports
from fglaudit.testing import check_attack, check_defense, check_protocol, example_graph, record
from fglaudit.view import Observer

SMALL = LPGNN(rounds=3, hidden=4)
CLEAR = dataclasses.replace(SMALL, label_epsilon=0.0)
EVERYBODY = Observer(wire=True)


def test_it_keeps_the_promises_of_a_protocol() -> None:
    check_protocol(SMALL)
    check_protocol(dataclasses.replace(CLEAR, label_hops=0, feature_hops=0))
    check_defense(MultiBit(epsilon=2.0), SMALL, quick=True)


def test_the_matrix_is_that_of_a_k_ary_response() -> None:
    matrix, keep = response_matrix(1.5, 4), keep_probability(1.5, 4)
    assert torch.allclose(matrix.sum(1), torch.ones(4)) and float(matrix[0, 0]) == pytest.approx(keep)
    assert math.log(float(matrix[0, 0] / matrix[1, 0])) == pytest.approx(1.5, rel=1e-5)
    assert torch.equal(response_matrix(0.0, 4), torch.eye(4))
    assert torch.allclose(response_matrix(10000.0, 4), torch.eye(4))


@pytest.mark.parametrize(("epsilon", "spent"), [(8.0, 8.0), (18.0, 18.0), (10000.0, 25.0)])
def test_some_responses_lie_at_any_epsilon(epsilon: float, spent: float) -> None:
    """From 18 on float32 held no lie: labels went as they are under a note that named an epsilon."""
    matrix = response_matrix(epsilon, 4).double()
    assert math.log(float(matrix[0, 0] / matrix[1, 0])) == pytest.approx(spent, rel=1e-6)
    reports = dataclasses.replace(SMALL, label_epsilon=epsilon).structure(example_graph()).get(Reports)
    assert reports is not None and reports.keep < 1
    event = response_event(reports.keep, reports.classes)
    assert epsilon_of(event, 0.0, Relation.REPLACE) == pytest.approx(spent, rel=1e-6)


def test_labels_of_training_and_validation_nodes_are_sent_once_and_lie_as_stated() -> None:
    graph = example_graph(nodes=1500)
    for protocol, keep in ((CLEAR, 1.0), (SMALL, keep_probability(1.0, 3))):
        (batch,) = record(protocol, graph).transcript.seen_by(EVERYBODY).of(ClassReports)
        assert isinstance(batch.payload, ClassReports) and bool((batch.receivers == SERVER).all())
        nodes, said = batch.payload.nodes, batch.payload.values.argmax(1)
        used = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for own, train, val in zip(graph.clients, graph.train, graph.val, strict=True):
            used[own[train | val]] = True
        assert torch.equal(nodes.sort().values, used.nonzero().squeeze(1))
        share = float((said == graph.y[nodes]).double().mean())
        assert abs(share - keep) < 5 * math.sqrt(keep * (1 - keep) / len(nodes)) + 1e-12


def test_steps_without_self_loops_are_the_dense_ones() -> None:
    graph = example_graph()
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    degree = adjacency.sum(1).clamp(min=1)
    edges = KeptEdges.of([graph.client(k) for k in range(graph.num_clients)], graph.degrees())
    mean, step = neighbours(edges)
    assert torch.allclose(mean @ graph.x, adjacency / degree.unsqueeze(1) @ graph.x, atol=1e-5)
    scaled = degree.rsqrt().unsqueeze(1) * adjacency * degree.rsqrt()
    found = SMALL.spread(graph.x, step)
    assert torch.allclose(found, torch.linalg.matrix_power(scaled, SMALL.label_hops) @ graph.x, atol=1e-4)
    assert torch.allclose(shares(found.clamp(min=0)).sum(1)[found.sum(1) > 0], torch.ones(()), atol=1e-5)


def test_a_test_label_moves_nothing() -> None:
    """Labels that are sent of no one change no message and no weight."""
    graph = example_graph()
    tested = torch.cat([own[mask] for own, mask in zip(graph.clients, graph.test, strict=True)])
    y = graph.y.clone()
    y[tested] = (y[tested] + 1) % graph.num_classes
    one, other = record(SMALL, graph).trained, record(SMALL, dataclasses.replace(graph, y=y)).trained
    assert all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())


def test_the_epsilon_of_rows_is_stated_and_that_of_labels_noted() -> None:
    run = record(SMALL, defense=MultiBit(epsilon=2.0))
    promise = run.recording.guarantee
    assert promise.epsilon_accounted == pytest.approx(2.0) and promise.unit == "node"
    assert promise.adjacency is not None and "features" in promise.adjacency
    assert any("together spend it" in note for note in run.trained.notes)
    assert any("as they are" in note for note in record(CLEAR).trained.notes)
    assert "made of features" in (KAryResponse().unsupported(SMALL.context(example_graph())) or "")


def test_what_exists_attacks_it() -> None:
    """Labels in the clear are read off; under responses the attack is adapted, and a client sees neither."""
    server = Observer((SERVER,), auxiliary=0.2)
    for protocol in (CLEAR, SMALL):
        view = record(protocol).view(server)
        check_attack(ReportLabels(), view)
        assert ReportLabels().unsupported(view) is None
    graph, alone = example_graph(), record(SMALL).view(Observer((0,)))
    assert "no report of a node of others" in (ReportLabels().unsupported(alone) or "")
    assert len(SMALL.exposed(graph, Observer((0,)))) == 0
    assert len(SMALL.exposed(graph, server)) == graph.num_nodes


@pytest.mark.parametrize(
    "fields",
    [
        {"label_epsilon": -1.0},
        {"label_epsilon": math.inf},
        {"label_epsilon": math.nan},
        {"feature_hops": -1},
        {"label_hops": -1},
        {"hidden": 0},
        {"rounds": 0},
    ],
)
def test_bad_fields_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(FglauditError):
        LPGNN(**fields)  # type: ignore[arg-type]
