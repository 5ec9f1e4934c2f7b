"""Predictions beside known labels: how far they are believed follows from the labels that are known."""

from __future__ import annotations

import dataclasses

import torch
from torch.nn.functional import one_hot

from fglaudit.adversary.predicted_labels import label_product, prediction_power
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer


def test_timid_predictions_are_believed_and_random_ones_are_not() -> None:
    graph = example_graph(nodes=120)
    view = record(FedGCN(hops=0, rounds=1), graph).view(Observer(parties=(SERVER,), topology=True, auxiliary=0.5))
    true = one_hot(graph.y, graph.num_classes).double()
    timid, random = 0.2 * true, 3 * torch.randn(true.shape, generator=derive(0, "logits"), dtype=torch.double)
    assert prediction_power(view, timid) == 32.0, "a model of few rounds is hardly sure of what it knows"
    assert prediction_power(view, random) == 0.0
    assert prediction_power(view, timid) * 0.2 > 5
    nodes = torch.arange(graph.num_nodes)
    found = label_product(view, timid, nodes, prediction_power(view, timid))
    assert bool((found.argmax(1) == graph.y).double().mean() > 0.98)


def test_with_few_known_labels_predictions_are_taken_as_they_are() -> None:
    graph = example_graph(nodes=120)
    view = record(FedGCN(hops=0, rounds=1), graph).view(Observer(parties=(SERVER,), auxiliary=0.5))
    few = dataclasses.replace(view, auxiliary=Auxiliary.empty(graph.num_features))
    assert prediction_power(few, torch.zeros(graph.num_nodes, graph.num_classes)) == 1.0
