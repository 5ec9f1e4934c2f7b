"""Who trains a classifier over public codes, and on which labels: named by the server and by any client that knows the
edges, and not under differentially private training."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.updates.code_gradients import code_gradients, unreadable_codes
from fglaudit.attacks.updates.code_labels import CodeLabels
from fglaudit.attacks.updates.code_members import CodeMembers
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol, Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer

HOPS = (2, 4)
KNOWS, CLIENT = Observer(parties=(SERVER,), topology=True), Observer(parties=(0,), topology=True)
PROTOCOLS = (
    StructureOnly(hops=HOPS, width=64, rounds=8),
    StructureOnly(hops=HOPS, width=64, rounds=8, features_at_home="own-subgraph"),
    StructureOnly(hops=HOPS, width=64, rounds=8, local_steps=1, weight_decay=0.0),
    PrivateReports(hops=(2,), code_hops=HOPS, width=64, encoder_rounds=2, rounds=8),
)


def training(graph: FederatedGraph) -> torch.Tensor:
    """Return which nodes train [N]."""
    found = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for nodes, mask in zip(graph.clients, graph.train, strict=True):
        found[nodes[mask]] = True
    return found


def drawn() -> FederatedGraph:
    """Return a graph whose training nodes are drawn: those of ``example_graph`` are all of one class."""
    graph, rng = example_graph(nodes=80), derive(0, "training nodes")
    masks = tuple(torch.rand(len(part), generator=rng) < 0.2 for part in graph.clients)
    clear = tuple(torch.zeros(len(part), dtype=torch.bool) for part in graph.clients)
    return dataclasses.replace(graph, train=masks, val=clear, test=tuple(~mask for mask in masks))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("observer", [KNOWS, CLIENT])
def test_training_nodes_and_their_labels_are_named(protocol: FederatedProtocol, observer: Observer) -> None:
    graph = drawn()
    found = code_gradients(record(protocol, graph).view(observer), CPU)
    trained = training(graph)
    others = torch.ones(graph.num_nodes, dtype=torch.bool)
    for client in observer.clients:
        others[graph.clients[client]] = False
    scores = found.power[others]
    order = scores.argsort(descending=True)[: int(trained[others].sum())]
    assert trained[others][order].double().mean() >= 0.9
    nodes, labels = found.labels()
    assert (labels == graph.y[nodes])[trained[nodes]].all()
    assert int((trained & others)[nodes].sum()) >= 0.9 * int(trained[others].sum())  # own uploads are taken off


def test_noise_on_gradients_hides_who_trains() -> None:
    graph = drawn()
    session = build("defense", "dp-sgd", {"epsilon": 1.0, "edges": "public"})
    protocol = StructureOnly(hops=HOPS, width=64, rounds=8, features_at_home="own-row")
    view = record(protocol, graph, session).view(KNOWS)
    answer = CodeMembers().run(view, rng=derive(0, "attack"), device=CPU)
    trained = training(graph)[answer.subjects]
    member, other = answer.estimate[trained], answer.estimate[~trained]
    above = (member.unsqueeze(1) > other).double() + 0.5 * (member.unsqueeze(1) == other).double()
    assert abs(float(above.mean().item()) - 0.5) < 0.25


@pytest.mark.parametrize("attack", [CodeMembers(), CodeLabels()])
@pytest.mark.parametrize("observer", [KNOWS, CLIENT])
def test_self_tests_succeed(attack: CodeMembers | CodeLabels, observer: Observer) -> None:
    for protocol in (PROTOCOLS[0], PROTOCOLS[3]):
        assert planted_flaw(attack, record(protocol, drawn()).view(observer), derive(0, "selftest"), CPU) is None


def test_labels_of_others_come_from_those_found() -> None:
    graph = drawn()
    view = record(PROTOCOLS[0], graph).view(KNOWS)
    answer = CodeLabels().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(answer, Inference)
    right = answer.estimate.argmax(1) == graph.y[answer.subjects]
    assert right[training(graph)[answer.subjects]].all()


def test_without_edges_or_codes_it_says_why_not() -> None:
    graph = drawn()
    blind = record(PROTOCOLS[0], graph).view(Observer(parties=(SERVER,)))
    assert "edges" in str(unreadable_codes(blind))
    bare = record(PrivateReports(hops=(2,), width=0, encoder_rounds=1, rounds=2), graph).view(KNOWS)
    assert "no public codes" in str(unreadable_codes(bare))
    other = record(build("protocol", "fedgcn", {"rounds": 2}), graph).view(KNOWS)
    assert unreadable_codes(other) is not None
