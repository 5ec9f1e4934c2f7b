"""What the last model of a classifier over public codes and reports predicts of nodes whose inputs are known."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import one_hot

from fglaudit.attacks.updates.code_predictions import CodePredictions
from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.interfaces import FederatedProtocol, Inference
from fglaudit.nn.codes import public_codes
from fglaudit.payloads import SERVER, ClassReports, ModelUpdate
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View
from fglaudit.wire.channel import Keep

KNOWS, CLIENT = Observer(parties=(SERVER,), topology=True), Observer(parties=(0,), topology=True)
INFORMED = Observer(parties=(0,), topology=True, auxiliary=0.4)
"""Knows labels enough to choose how far the model is to be trusted."""
REPORTS = PrivateReports(hops=(1, 2), code_hops=(2, 4), width=64, encoder_rounds=4, rounds=8)
PROTOCOLS = (StructureOnly(hops=(2, 4), width=32, rounds=4), REPORTS, dataclasses.replace(REPORTS, width=0))


def cliques() -> FederatedGraph:
    """Return five cliques of ten, a class each, with a node in five in training; a row has a word of its class."""
    pairs, classes = torch.cartesian_prod(torch.arange(10), torch.arange(10)).T, 5
    edges = torch.cat([pairs + 10 * c for c in range(classes)], 1)
    y = torch.arange(10 * classes) // 10
    graph = example_graph(nodes=10 * classes, features=24, classes=classes)
    masks = tuple(nodes % 5 == 0 for nodes in graph.clients)
    clear = tuple(torch.zeros_like(mask) for mask in masks)
    return dataclasses.replace(
        graph,
        y=y,
        x=one_hot(y, 24).float(),
        edge_index=canonical_edges(edges, len(y)),
        train=masks,
        val=clear,
        test=tuple(~m for m in masks),
    )


def found(view: View) -> Inference:
    answer = CodePredictions().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(answer, Inference)
    return answer


@pytest.mark.parametrize("observer", [KNOWS, CLIENT, INFORMED])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_self_tests_succeed(protocol: FederatedProtocol, observer: Observer) -> None:
    view = record(protocol, example_graph()).view(observer)
    assert CodePredictions().unsupported(view) is None
    assert planted_flaw(CodePredictions(), view, derive(0, "self-test"), CPU) is None


def test_predictions_are_those_of_the_clients_own_model() -> None:
    """Without features at home all inputs are public: by matrices written out, the clients' very predictions."""
    graph = cliques()
    run = record(StructureOnly(hops=(1, 2), width=16, rounds=3, features_at_home="none"), graph)
    adjacency = torch.eye(graph.num_nodes).index_put((graph.edge_index[0], graph.edge_index[1]), torch.ones(()))
    scale = adjacency.sum(1).rsqrt()
    step = scale[:, None] * adjacency * scale
    codes = public_codes(graph.num_nodes, 16, 0)
    inputs = torch.cat([torch.nn.functional.normalize(rows, dim=1) for rows in (step @ codes, step @ step @ codes)], 1)
    answer = found(run.view(KNOWS))
    messages = list(run.view(KNOWS).messages.of(ModelUpdate))
    assert isinstance(messages[-1].payload, ModelUpdate)
    logits = inputs / 2**0.5 @ messages[-1].payload.vector[0].view(-1, graph.num_classes)
    assert torch.equal(answer.estimate.argmax(1), logits.argmax(1)[answer.subjects])


def test_a_server_without_a_label_reads_labels_off_the_model() -> None:
    graph = cliques()
    for defense in (None, KAryResponse(epsilon=2.0)):
        view = record(dataclasses.replace(REPORTS, learning_rate=1.0, rounds=20), graph, defense).view(KNOWS)
        answer = found(view)
        assert (answer.estimate.argmax(1) == graph.y[answer.subjects]).double().mean() > 0.9


def test_both_ends_of_a_training_are_kept() -> None:
    keep = Keep.for_attacks([KNOWS], [CodePredictions()], 200)
    assert [keep.wants(ModelUpdate, round) for round in (0, 64, 100, 200)] == [True, True, False, True]
    assert keep.wants(ClassReports, 100)
