"""The self-tests' simulated messages of GFL-APPNP are those that the protocol's own code makes of the same rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from node_graphs import graph as node_graph
from torch import Tensor

from fglaudit.attacks.jacobians.encoder import global_models
from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.jacobians.planting import most_nodes, plant_encoder_run
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.graph import FeatureKind, federate
from fglaudit.interfaces import Planted
from fglaudit.nn.propagation import personalised_propagation
from fglaudit.payloads import (
    SERVER,
    HiddenRepresentations,
    Jacobians,
    Payload,
    PropagatedJacobians,
    PropagatedRepresentations,
)
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.gfl_appnp.jacobians import Hidden
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import record
from fglaudit.view import Observer, View

CHECKED = (0, 20, 47)
"""Rounds that are compared."""


def view_of(data: str, observer: Observer) -> View:
    drawn = draw_task(data, CsbmTask(nodes=20, dimensions=8, samples=None if data == "csbm-dnc" else 4))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    graph = federate(drawn, list(torch.arange(20).unsqueeze(1)), drawn.train, drawn.val, drawn.test)
    return record(GFLAPPNP(hidden=6, rounds=2), graph).view(observer)


def protocol_messages(planted: Planted, node: int, round: int) -> tuple[Tensor, Tensor]:
    """What the protocol makes of a node's planted rows under the model of a round: h [C] and its Jacobian [C, D]."""
    x = planted.rows[planted.nodes == node].unsqueeze(0)
    model = global_models(planted.view)[round]
    hidden = Hidden.of(x, model.w1[None].float(), model.w2[None].float())
    return hidden.mean[0], hidden.jacobians(x, 0, 1)[0]


def values(view: View, payload: type[Payload], round: int) -> tuple[Tensor, Tensor, Tensor]:
    batch = next(batch for batch in view.messages.of(payload) if batch.round == round)
    return next(iter(batch.payload.tensors().values())), batch.senders, batch.receivers


@pytest.mark.parametrize("data", ["csbm-dnc", "csbm-snc"])
def test_uploads_are_the_protocols(data: str) -> None:
    planted = plant_encoder_run(view_of(data, Observer((SERVER,))), derive(0, "plant"))
    for round in CHECKED:
        hidden, senders, _ = values(planted.view, HiddenRepresentations, round)
        jacobians, _, _ = values(planted.view, Jacobians, round)
        for place, node in enumerate(senders.tolist()):
            h, jacobian = protocol_messages(planted, node, round)
            torch.testing.assert_close(hidden[place], h)
            torch.testing.assert_close(jacobians[place], jacobian)


@pytest.mark.parametrize("data", ["csbm-dnc", "csbm-snc"])
def test_deliveries_are_the_protocols(data: str) -> None:
    planted = plant_encoder_run(view_of(data, Observer((3, 5), topology=True)), derive(0, "plant"))
    view = planted.view
    assert view.topology is not None
    weights = personalised_propagation(view.topology, view.public.num_nodes, 0.1, 10)
    for round in CHECKED:
        sums, _, receivers = values(view, PropagatedRepresentations, round)
        propagated, _, _ = values(view, PropagatedJacobians, round)
        for place, client in enumerate(receivers.tolist()):
            (neighbor,) = next(c.remote_nodes for c in view.own if c.client == client).tolist()
            h, jacobian = protocol_messages(planted, neighbor, round)
            torch.testing.assert_close(sums[place], weights[client, neighbor] * h)
            torch.testing.assert_close(propagated[place], weights[client, neighbor] * jacobian)


@pytest.mark.parametrize("features", [1, 2, 4, 6])
def test_few_features_leave_a_plain_leak_plain(features: int) -> None:
    """Several samples of a node were often one and the same row, which no Jacobian shows to be several."""
    graph = draw_task("csbm-dnc", CsbmTask(nodes=24, degree=6.0, dimensions=features), draw=0)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    clients = list(torch.arange(graph.num_nodes).unsqueeze(1))
    federated = federate(graph, clients, graph.train, graph.val, graph.test)
    binary = dataclasses.replace(federated, x=(federated.x > 0).float(), features=FeatureKind.BINARY)
    view = record(GFLAPPNP(rounds=2, hidden=8), binary).view(Observer((-1,), topology=True))
    assert planted_flaw(JacobianReading(), view, derive(0, "self-test"), torch.device("cpu")) is None


@pytest.mark.parametrize("jacobians", [True, False])
def test_wide_rows_are_planted_at_fewer_nodes(jacobians: bool) -> None:
    """At 2000 features a self-test took many minutes: it grows with the square of them, or the cube."""
    view = record(GFLAPPNP(rounds=2, hidden=8), node_graph()).view(Observer((SERVER,)))
    narrow, wide = (most_nodes(_with_features(view, count), jacobians) for count in (16, 20_000))
    assert narrow > wide >= 4


def _with_features(view: View, features: int) -> View:
    first, *others = view.public.layout.items()
    layout = {first[0]: (features, *first[1][1:]), **dict(others)}
    return dataclasses.replace(view, public=dataclasses.replace(view.public, layout=layout, num_features=features))
