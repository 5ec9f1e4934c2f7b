"""Sensitivities by brute force: what all messages of a training differ by, before noise, if one record changes.

The adversary has seen the same earlier messages in both worlds, so what is released is replaced by fixed numbers here.
Summed over the whole training, squared distances (L1 distances for Laplace noise) must stay within
``releases x sensitivity^2`` (``releases x sensitivity``), which is what is accounted.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fedgat_runs import SMALL
from torch import Tensor
from user_graphs import GAT, GCN, user_graph

from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.facts import Fact
from fglaudit.graph import ClientGraph, FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.mechanism import ClipNorm, Distribution
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP, Variant
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel

pytestmark = pytest.mark.filterwarnings("ignore:.*left the series' domain:UserWarning")
LONG = 1000.0
TRANSFORMER: dict[str, Any] = {"hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3}


class Watched(DefenseSession):
    """Keeps what would get noise, and releases numbers that do not depend on any data."""

    def __init__(self, honest: NoiseSession) -> None:
        self.honest = honest
        self.kept: list[tuple[type[Payload], Tensor, Tensor]] = []

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return self.honest.prepare(client, rng)

    def changes(self, payload: type[Payload]) -> bool:
        return self.honest.changes(payload)

    def facts(self) -> tuple[Fact, ...]:
        return self.honest.facts()

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        kind = type(batch.payload)
        if kind not in self.honest.noised:
            return batch.payload
        release, mechanism = self.honest.noised[kind]
        if bool((batch.senders == SERVER).all()) is not release.by_server:
            return self.honest.release(batch, rng)
        sent = {}
        for name, value in batch.payload.tensors().items():
            noisy = name in release.fields if release.fields else value.is_floating_point()
            sent[name] = value
            if noisy:
                self.kept.append((kind, batch.senders, self.honest.bounded(batch, value, mechanism).double()))
                drawn = torch.randn(value.shape, generator=derive(0, "released", len(self.kept)))
                sent[name] = 0.1 * drawn.to(value)
        return kind.from_tensors(sent)


def watched(protocol: FederatedProtocol, graph: FederatedGraph, defense: Defense) -> Watched:
    honest = defense.bind(protocol.context(graph))
    assert isinstance(honest, NoiseSession)
    session = Watched(honest)
    channel = RecordingChannel(session, graph.num_clients, derive(0, "defense"))
    protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    return session


def with_rows(graph: FederatedGraph, nodes: list[int] | Tensor, rows: Tensor) -> FederatedGraph:
    x = graph.x.clone()
    x[nodes] = rows.to(x)
    return dataclasses.replace(graph, x=x)


def spent(one: Watched, other: Watched) -> dict[type[Payload], float]:
    """Return, by payload, the share of the accounted distance over the whole training that two worlds make use of."""
    used: dict[type[Payload], float] = {}
    assert len(one.kept) == len(other.kept) > 0
    for (kind, _, a), (_, _, b) in zip(one.kept, other.kept, strict=True):
        release, mechanism = one.honest.noised[kind]
        order = 2 if mechanism.distribution == "gaussian" else 1
        distance = float((a - b).abs().pow(order).sum()) / mechanism.sensitivity**order
        if mechanism.norm == "elementwise":  # every coordinate is a release of its own
            assert float((a - b).abs().max()) <= mechanism.sensitivity * (1 + 1e-6)
            distance /= a[0].numel()
        used[kind] = used.get(kind, 0.0) + distance / release.times
    for kind, (release, _) in one.honest.noised.items():  # what is accounted is as often as anybody sends
        if release.one_message:
            senders = torch.cat([parties for other, parties, _ in one.kept if other is kind])
            assert int(torch.bincount(senders).max()) <= release.times
    return used


def star(leaves: int = 5) -> FederatedGraph:
    """Node 0 with ``leaves`` neighbours, two of them neighbours as well, over three clients."""
    n = leaves + 1
    edges = canonical_edges(torch.tensor([[0] * leaves + [1], [*range(1, n), 2]]), n)
    every = torch.ones(n, dtype=torch.bool)
    x = torch.rand(n, 6, generator=derive(0, "x"))
    return federate(Graph(x, torch.arange(n) % 2, edges, "star"), list(torch.arange(n).chunk(3)), every, every, every)


@pytest.mark.parametrize("graph", [star(), example_graph(nodes=12, features=6)], ids=["star", "random"])
@pytest.mark.parametrize(
    ("protocol", "on", "reached"),
    [
        (FedGCN(rounds=1, aggregate="counts"), "NeighborSums", 1.0),
        (FedGCN(rounds=1, hops=2, aggregate="counts"), "NeighborSums", 1.0),
        (FedGCN(rounds=1), "NeighborSums", 0.3),
        (FedGAT(**SMALL | {"rounds": 1}), "RawFeatures", 1.0),
        (FedGAT(**SMALL | {"rounds": 1}), "MaskedMatrices", 0.5),
        (FedGAT(**SMALL | {"rounds": 1, "remote": "matrices"}), "MaskedMatrices", 0.5),
        (FedGAT(**SMALL | {"rounds": 1, "variant": "vector"}), "MaskedVectors", 1.0),
        (FedGAT(**SMALL | {"rounds": 1, "variant": "vector", "remote": "matrices"}), "MaskedVectors", 1.0),
    ],
)
def test_a_row_that_is_zeroed_out(graph: FederatedGraph, protocol: FederatedProtocol, on: str, reached: float) -> None:
    """Clip 1, so that the ball to which FedGAT's server scales rows cuts nothing further off."""
    row = torch.tensor([3.0, 0, -4.0, 0, 0, 12.0]) * LONG
    used = []
    for node in range(graph.num_nodes):
        worlds = [watched(protocol, with_rows(graph, [node], r), Gaussian(epsilon=8.0, on=on)) for r in (row, 0 * row)]
        (share,) = spent(*worlds).values()
        used.append(share)
    assert reached * (1 - 1e-4) <= max(used) <= 1 + 1e-4


@pytest.mark.parametrize("settings", [GCN, GAT, GCN | {"evaluation": "clean"}], ids=["gcn", "gat", "clean"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_replaced_features_of_a_user(settings: dict[str, Any], mechanism: Distribution) -> None:
    graph, protocol = user_graph(), NFedGNN(**settings)
    row = torch.ones(graph.num_features) * LONG
    worlds = [
        watched(protocol, with_rows(graph, [4], sign * row), ClippedNoise(mechanism, clip=0.5)) for sign in (1, -1)
    ]
    (share,) = spent(*worlds).values()
    assert 0.2 < share <= 1 + 1e-9
    first = [world.kept[0][2][4] for world in worlds]  # before any step, latents of opposite rows are opposite
    order = 2 if mechanism == "gaussian" else 1
    assert float((first[0] - first[1]).norm(p=order)) == pytest.approx(
        next(iter(worlds[0].honest.noised.values()))[1].sensitivity
    )
    for (_, senders, one), (_, _, other) in zip(worlds[0].kept, worlds[1].kept, strict=True):
        assert senders[(one != other).flatten(1).any(1)].tolist() in ([4], [])  # nobody else's latent moves


@pytest.mark.parametrize("variant", ["full", "v2"])
def test_replaced_features_of_a_node_in_several_kinds_of_messages(variant: Variant) -> None:
    task = draw_task("csbm-dnc", CsbmTask(nodes=20, dimensions=8))
    assert task.train is not None and task.val is not None and task.test is not None
    graph = federate(task, list(torch.arange(20).unsqueeze(1)), task.train, task.val, task.test)
    protocol = GFLAPPNP(variant=variant, hidden=8, rounds=3, local_steps=2)
    trainer = int(task.train.nonzero()[0])
    row = torch.randn(8, generator=derive(0, "row")) * LONG
    defense = JointNoise(epsilon=8.0, clip=(0.5, 2.0, 0.1))
    worlds = [watched(protocol, with_rows(graph, [trainer], sign * row), defense) for sign in (1, -1)]
    shares = spent(*worlds)
    assert len(shares) == (3 if variant == "full" else 2)
    assert all(0.05 < share <= 1 + 1e-5 for share in shares.values()), shares
    for (_, senders, one), (_, _, other) in zip(worlds[0].kept, worlds[1].kept, strict=True):
        assert senders[(one != other).flatten(1).any(1)].tolist() in ([trainer], [])


@pytest.mark.parametrize("norm", ["elementwise", "l1"])
def test_replaced_features_of_a_client(norm: ClipNorm) -> None:
    graph = example_graph()
    protocol = FedGT(rounds=2, **TRANSFORMER)
    defense = ClippedLaplace(clip=0.01, scale=0.005, norm=norm, on=("GlobalNodes", "ModelUpdate"))
    rows = torch.randn(len(graph.clients[1]), graph.num_features, generator=derive(0, "rows")) * LONG
    worlds = [watched(protocol, with_rows(graph, graph.clients[1], sign * rows), defense) for sign in (1, -1)]
    shares = spent(*worlds)
    assert len(shares) == 2 and all(0.02 < share <= 1 + 1e-5 for share in shares.values()), shares
    for (_, senders, one), (_, _, other) in zip(worlds[0].kept, worlds[1].kept, strict=True):
        assert senders[(one != other).flatten(1).any(1)].tolist() in ([1], [])
