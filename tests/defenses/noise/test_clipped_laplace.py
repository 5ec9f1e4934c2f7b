"""Clipped Laplace noise: what is released, and what it costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fglaudit.context import Context
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive, Clipped, Field
from fglaudit.payloads import SERVER, GlobalNodes, MessageBatch
from fglaudit.privacy.mechanism import ClipNorm
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.rng import derive
from fglaudit.testing import check_defense, example_graph, record

SMALL: dict[str, Any] = {"hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3}
BOTH = ("GlobalNodes", "ModelUpdate")


@pytest.mark.parametrize("norm", ["elementwise", "l1"])
def test_conformance(norm: ClipNorm) -> None:
    check_defense(ClippedLaplace(norm=norm, on=BOTH), FedGT(rounds=2, **SMALL), quick=True)


def test_only_uploads_change() -> None:
    session = ClippedLaplace(clip=1.0, scale=0.1).bind(context(FedGT(rounds=2, **SMALL)))
    values = torch.randn(2, 3, 8, generator=derive(0)) * 5
    down = MessageBatch(1, torch.tensor([SERVER, SERVER]), torch.arange(2), GlobalNodes(values))
    assert session.release(down, derive(0)) is down.payload
    up = MessageBatch(1, torch.arange(2), torch.tensor([SERVER, SERVER]), GlobalNodes(values))
    released = session.release(up, derive(0))
    assert isinstance(released, GlobalNodes)
    assert float((released.values - values.clamp(-1, 1)).abs().max()) < 2
    assert not torch.equal(released.values, values.clamp(-1, 1))


def context(protocol: FedGT | FedGCN) -> Context:
    graph = example_graph()
    return Context(protocol.name, protocol.rounds, 3, graph.num_features, protocol.releases(graph))


def test_guarantee_over_rounds_and_coordinates() -> None:
    graph = example_graph()
    run = record(FedGT(rounds=3, **SMALL), graph, ClippedLaplace(on=BOTH))
    size = sum(weight[0].numel() for weight in run.trained.weights.values())
    promise = run.session.guarantee()
    assert promise.epsilon_claimed == 4
    assert promise.epsilon_accounted == pytest.approx(4 * 3 * (3 * 8 + size))
    assert (promise.unit, promise.releases, promise.delta) == ("client", 3, 0)
    whole = record(FedGT(rounds=3, **SMALL), graph, ClippedLaplace(on=BOTH, norm="l1")).session.guarantee()
    assert whole.epsilon_accounted == pytest.approx(4 * 3 * 2)
    loose = record(FedGT(rounds=3, **SMALL), graph, ClippedLaplace(scale=2.0, on=BOTH, delta=1e-5)).session.guarantee()
    assert loose.epsilon_accounted is not None  # all of it at one delta, far below what adding up gives
    assert 0 < loose.epsilon_accounted < 0.5 * 0.002 * 3 * (3 * 8 + size)


def test_no_epsilon_where_updates_stay_in_the_clear() -> None:
    run = record(FedGT(rounds=3, **SMALL), example_graph(), ClippedLaplace())
    promise = run.session.guarantee()
    assert promise.epsilon_accounted is None and promise.epsilon_claimed == 4
    assert "GlobalNodes alone: epsilon 288; ModelUpdate in the clear" in promise.mechanism
    target = Field("GlobalNodes", direction="up")
    assert run.session.facts() == (
        Clipped(target, "elementwise", ClippedLaplace().clip),
        Additive(target, "laplace", 0.001),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clip": 0.0}, r"clip \(the paper's delta\) > 0; got 0"),
        ({"scale": 0.0}, r"scale \(the paper's lambda\) > 0"),
        ({"scale": -0.001}, "got -0.001"),
        ({"clip": float("nan")}, "got nan"),
        ({"norm": "l2"}, "laplace noise hides distances in l1"),
        ({"norm": "max"}, "unknown norm 'max'"),
        ({"delta": 1.0}, r"lies in \[0, 1\)"),
        ({"on": ()}, "at least one payload"),
        ({"on": ("GlobalNode",)}, "did you mean 'GlobalNodes'"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        ClippedLaplace(**arguments)


def test_protocols_that_do_not_upload_it() -> None:
    assert "does not list GlobalNodes" in str(ClippedLaplace().unsupported(context(FedGCN())))
    assert ClippedLaplace().unsupported(context(FedGT(**SMALL))) is None


def test_copies_at_other_clients_are_not_covered() -> None:
    """A node that two clients hold is in a message of each: what one of them sends is bounded, not both together."""
    masks, halves = (torch.ones(40, dtype=torch.bool),) * 2, (torch.arange(40), torch.arange(20, 60))
    graph = dataclasses.replace(example_graph(), clients=halves, train=masks, val=masks, test=masks)
    said = []
    for one in (example_graph(), graph):
        found = record(FedGT(rounds=2, **SMALL), one, ClippedLaplace(on=BOTH, norm="l1")).recording.verdict
        said.append((found.adjacency, found.not_covered))
    assert "its own copies" not in said[0][0] and "other clients" not in said[0][1]
    assert "its own copies" in said[1][0] and "copies of its nodes at other clients" in said[1][1]


def test_a_clients_record_is_named_as_such() -> None:
    facts = FedGT(rounds=2, **SMALL).context(example_graph())
    for defense in (JointNoise(unit="client", on=BOTH, clip=(1.0, 1.0)), ClippedNoise(unit="client", on="GlobalNodes")):
        promise = defense.bind(facts).guarantee()
        assert promise.unit == "client" and promise.adjacency.startswith("the features of all nodes of one client ")
