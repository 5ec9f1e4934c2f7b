"""Label propagation: what is sent, the dense iteration, and what moves nothing."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from fglaudit.attacks.codes import spread_labels
from fglaudit.attacks.codes.label_sums import LabelSums
from fglaudit.attacks.codes.report_labels import ReportLabels
from fglaudit.attacks.codes.spread_labels import solved_labels
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Inference
from fglaudit.nn.responses import keep_probability
from fglaudit.payloads import SERVER, ClassReports, HopSums
from fglaudit.protocols.private.label_propagation import LabelPropagation
from fglaudit.rng import derive
from fglaudit.testing import CPU, check_attack, check_protocol, example_graph, record
from fglaudit.view import Observer

SMALL = LabelPropagation(rounds=4)
_DRAWN = example_graph()
GRAPH = dataclasses.replace(  # training nodes of all classes
    _DRAWN,
    train=tuple(nodes % 4 == 0 for nodes in _DRAWN.clients),
    val=tuple(nodes % 4 == 1 for nodes in _DRAWN.clients),
    test=tuple(nodes % 4 > 1 for nodes in _DRAWN.clients),
)
EVERYBODY = Observer(wire=True)


def test_it_keeps_the_promises_of_a_protocol() -> None:
    check_protocol(SMALL)
    check_protocol(LabelPropagation(rounds=1, label_epsilon=2.0))


def test_classes_are_those_of_the_dense_iteration_from_training_labels_alone() -> None:
    graph = GRAPH
    n = graph.num_nodes
    adjacency = torch.eye(n)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    step = scale.unsqueeze(1) * adjacency * scale
    labels = torch.zeros(n, graph.num_classes)
    for own, train in zip(graph.clients, graph.train, strict=True):
        labels[own[train], graph.y[own[train]]] = 1
    rows = labels
    for _ in range(SMALL.rounds):
        rows = SMALL.spread * step @ rows + (1 - SMALL.spread) * labels
    right = rows.argmax(1) == graph.y
    trained = record(SMALL, graph).trained
    assert 0.1 < trained.whole_test_set < 1
    tested = [right[own[mask]] for own, mask in zip(graph.clients, graph.test, strict=True)]
    assert trained.right is not None and torch.equal(trained.right, torch.cat(tested))
    assert trained.whole_test_set == pytest.approx(float(torch.cat(tested).double().mean()))
    for k, mine in enumerate(tested):
        assert float(trained.accuracy[-1, k]) == pytest.approx(float(mine.double().mean()))


def test_neither_a_feature_nor_a_label_that_is_not_trained_on_enters_a_message() -> None:
    graph = GRAPH
    y = graph.y.clone()
    for own, train in zip(graph.clients, graph.train, strict=True):
        y[own[~train]] = (y[own[~train]] + 1) % graph.num_classes
    other = dataclasses.replace(graph, x=1 - graph.x, y=y)
    for kind in (ClassReports, HopSums):
        one, two = (list(record(SMALL, g).transcript.seen_by(EVERYBODY).of(kind)) for g in (graph, other))
        assert len(one) == len(two) > 0
        for a, b in zip(one, two, strict=True):
            assert all(torch.equal(t, b.payload.tensors()[name]) for name, t in a.payload.tensors().items())


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_labels_of_training_nodes_are_sent_once_and_lie_as_stated(epsilon: float) -> None:
    graph = example_graph(nodes=3000)
    graph = dataclasses.replace(graph, train=tuple(nodes % 2 == 0 for nodes in graph.clients))
    (batch,) = (
        record(LabelPropagation(rounds=1, label_epsilon=epsilon), graph).transcript.seen_by(EVERYBODY).of(ClassReports)
    )
    assert isinstance(batch.payload, ClassReports) and bool((batch.receivers == SERVER).all())
    nodes, said = batch.payload.nodes, batch.payload.values.argmax(1)
    assert torch.equal(nodes.sort().values, torch.arange(0, graph.num_nodes, 2))
    keep = keep_probability(epsilon, graph.num_classes) if epsilon else 1.0
    share = float((said == graph.y[nodes]).double().mean())
    assert abs(share - keep) < 5 * math.sqrt(keep * (1 - keep) / len(nodes)) + 1e-12


def test_the_server_reads_labels_as_they_are() -> None:
    view = record(SMALL, GRAPH).view(Observer(parties=(SERVER,)))
    check_attack(ReportLabels(), view)
    found = ReportLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference) and len(found.subjects) == sum(int(mask.sum()) for mask in GRAPH.train)
    assert torch.equal(found.estimate.argmax(1), GRAPH.y[found.subjects])


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_sums_of_labels_give_away_labels_of_nodes_farther_off(epsilon: float) -> None:
    """What is found beside the neighbours' labels is what was sent, none wrong; without the edges, only neighbours'."""
    graph = example_graph(nodes=120)
    graph = dataclasses.replace(graph, train=tuple(nodes % 12 == 0 for nodes in graph.clients))
    run = record(LabelPropagation(rounds=6, label_epsilon=epsilon), graph)
    (batch,) = run.transcript.seen_by(EVERYBODY).of(ClassReports)
    assert isinstance(batch.payload, ClassReports)
    sent = torch.zeros(graph.num_nodes, graph.num_classes).index_copy_(0, batch.payload.nodes, batch.payload.values)
    near = run.view(Observer(parties=(0,)))
    far = run.view(Observer(parties=(0,), topology=True))
    found = {}
    for name, view in (("near", near), ("far", far)):
        check_attack(LabelSums(), view)
        solved = solved_labels(view, CPU)
        assert solved is not None
        assert torch.equal(solved.labels[solved.known].float(), sent[solved.known])
        others = solved.known & (graph.owner() != 0)
        found[name] = int((solved.labels[others].sum(1) > 0).sum())
    assert found["far"] > found["near"]
    strangers = run.view(Observer(parties=(0,), topology=True, auxiliary=0.1))
    inferred = LabelSums().run(strangers, rng=derive(0, "attack"), device=CPU)
    assert isinstance(inferred, Inference)
    if not epsilon:
        solved = solved_labels(strangers, CPU)
        assert solved is not None
        told = solved.labels[inferred.subjects].sum(1) > 0
        assert torch.equal(inferred.estimate[told].argmax(1), graph.y[inferred.subjects[told]])


def test_rows_that_others_reports_may_have_entered_are_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few nodes solved for at once, or too few weights kept: less is found, and nothing wrong."""
    graph = example_graph(nodes=120)
    graph = dataclasses.replace(graph, train=tuple(nodes % 3 == 0 for nodes in graph.clients))
    view = record(LabelPropagation(rounds=6), graph).view(Observer(parties=(0,), topology=True))
    whole = solved_labels(view, CPU)
    monkeypatch.setattr(spread_labels, "_ENTRIES", 1)
    few = solved_labels(view, CPU)
    assert whole is not None and few is not None and int(few.known.sum()) < int(whole.known.sum())
    for solved in (whole, few):
        nodes = solved.known & (solved.labels.sum(1) > 0)
        assert torch.equal(solved.labels[nodes].argmax(1), graph.y[nodes])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"label_epsilon": -1.0}, "epsilon"),
        ({"label_epsilon": math.inf}, "epsilon"),
        ({"rounds": 0}, "rounds >= 1"),
        ({"spread": 1.0}, "strictly between 0 and 1"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, float], said: str) -> None:
    with pytest.raises(FglauditError, match=said):
        LabelPropagation(**fields)  # type: ignore[arg-type]
