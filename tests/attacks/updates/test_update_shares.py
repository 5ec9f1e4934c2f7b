"""Label distributions of training nodes from an honest server's steps of SGD."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import one_hot

from fglaudit.attacks.updates.update_shares import UpdateShares
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer


def mixed(clients: int) -> FederatedGraph:
    """Return a graph whose clients have all classes, the rarest with half of what the largest has."""
    graph = example_graph(nodes=60 * clients, features=32, clients=clients, classes=3)
    y = graph.y.clone()
    for client, nodes in enumerate(graph.clients):
        y[nodes] = (torch.tensor([0, 1, 2, 0])[torch.arange(len(nodes)) % 4] + client) % 3
    words = torch.rand(len(y), 16, generator=derive(1, "words")).topk(3, dim=1).indices
    x = torch.zeros(len(y), 32).scatter_(1, words, 1.0)
    x[torch.arange(len(y)), 16 + 4 * y + torch.arange(len(y)) % 4] = 1.0
    train = tuple(torch.ones_like(one) for one in graph.train)
    none = tuple(torch.zeros_like(one) for one in graph.train)
    return dataclasses.replace(graph, x=x, y=y, train=train, val=none, test=train)


@pytest.mark.parametrize("clients", [3, 6])
def test_the_rarest_class_of_a_client_that_has_all_is_not_taken_to_be_absent(clients: int) -> None:
    """Each has a quarter of its nodes in its rarest class, and half in its largest."""
    graph = mixed(clients)
    view = record(FedGCN(hops=0, rounds=2), graph).view(Observer(parties=(SERVER,)))
    found = UpdateShares().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    truth = torch.stack([one_hot(graph.y[nodes], 3).double().mean(0) for nodes in graph.clients])
    assert bool((found.estimate.min(1).values > 0.02).all()) and bool(
        (found.estimate.argmax(1) == truth.argmax(1)).all()
    )
    assert float((found.estimate - truth).abs().sum(1).mean()) / 2 < 0.25
