"""Noise on latents: clip, sensitivity and scale against closed forms; epsilon over all rounds; refusals."""

from __future__ import annotations

import math

import pytest
import torch
from stated_facts import stated
from torch import Tensor
from user_graphs import GCN, user_graph

from fglaudit.context import Context
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.payloads import SERVER, LatentGradients, Latents, MessageBatch, ModelUpdate
from fglaudit.privacy.accounting import Relation, noise_multiplier
from fglaudit.privacy.mechanism import Distribution
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import check_defense, example_graph, record
from fglaudit.view import Observer

SERVER_VIEW = Observer(parties=(SERVER,))


def context(protocol: FederatedProtocol) -> Context:
    return Context(type(protocol).name, protocol.num_rounds, 12, 24, protocol.releases(user_graph()))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_conformance(mechanism: Distribution) -> None:
    defense = ClippedNoise(mechanism)
    check_defense(defense, NFedGNN(**GCN), user_graph(), quick=True)
    check_defense(defense, CNFGNN(**GCN), user_graph(), quick=True)
    check_defense(defense, FedGCN(rounds=2), example_graph(), quick=True)


@pytest.mark.parametrize(("mechanism", "norm"), [("gaussian", 2), ("laplace", 1)])
def test_messages_are_clipped_and_noise_has_the_stated_scale(mechanism: Distribution, norm: int) -> None:
    session = ClippedNoise(mechanism, epsilon=8.0, clip=0.5).bind(context(NFedGNN(**GCN)))
    # four rounds; replacing features moves a message by twice the clip
    scale = noise_multiplier(mechanism, 8.0, 1e-5, Relation.ZERO_OUT, 4) * 2 * 0.5
    assert stated(session, Additive, "Latents").scale == pytest.approx(scale)
    users = torch.arange(4000)
    values = torch.randn(4000, 6, generator=derive(0, "values"))
    values[0] *= 1e-3
    batch = MessageBatch(1, users, torch.full_like(users, SERVER), Latents(values))
    kept = values.clone()
    sent = session.release(batch, derive(0, "noise"))
    assert isinstance(sent, Latents) and torch.equal(values, kept)
    size = values.norm(p=norm, dim=1, keepdim=True)
    clipped = values * (0.5 / size).clamp(max=1)
    assert torch.equal(clipped[0], values[0])
    noise = (sent.values - clipped).flatten()
    assert float(noise.std()) == pytest.approx(stated(session, Additive, "Latents").std, rel=0.02)
    expected = (
        math.sqrt(2 / math.pi) * scale if mechanism == "gaussian" else scale
    )  # the mean absolute value tells them apart
    assert float(noise.abs().mean()) == pytest.approx(expected, rel=0.02)
    assert abs(float(noise.mean())) < 0.03 * scale
    down = MessageBatch(1, torch.full_like(users, SERVER), users, LatentGradients(values))
    assert session.release(down, derive(0, "noise")) is down.payload


def test_epsilon_is_composed_over_all_uploads() -> None:
    for protocol, times in ((NFedGNN(rounds=20), 20), (NFedGNN(rounds=20, evaluation="clean"), 40)):
        for mechanism in ("gaussian", "laplace"):
            promise = ClippedNoise(mechanism, epsilon=4.0).bind(context(protocol)).guarantee()
            assert promise.releases == times and promise.unit == "node" and "replaced" in promise.adjacency
            assert promise.epsilon_accounted == pytest.approx(4.0, rel=1e-3)


def test_no_epsilon_where_weights_are_sent_as_well() -> None:
    for payload in ("Latents", "ModelUpdate"):
        assert ClippedNoise(on=payload).bind(context(CNFGNN(**GCN))).guarantee().epsilon_accounted is None


def test_noise_on_uploaded_weights_leaves_the_broadcast_alone() -> None:
    run = record(CNFGNN(**GCN), user_graph(), ClippedNoise(on="ModelUpdate"))
    first = next(iter(run.transcript.seen_by(SERVER_VIEW).of(ModelUpdate))).payload
    assert isinstance(first, ModelUpdate) and first.vector.stride(0) == 0


def test_stronger_noise_changes_more() -> None:
    graph = user_graph()

    def first(defense: Defense | None) -> Tensor:
        payload = next(iter(record(NFedGNN(**GCN), graph, defense).transcript.seen_by(SERVER_VIEW).of(Latents))).payload
        assert isinstance(payload, Latents)
        return payload.values

    clean, weak, strong = map(
        first, (None, ClippedNoise(epsilon=5000.0, clip=100.0), ClippedNoise(epsilon=1.0, clip=100.0))
    )
    assert (weak - clean).norm() < 0.1 * (strong - clean).norm()


def test_what_it_cannot_serve_is_refused_with_a_reason() -> None:
    sums = ClippedNoise(on="NeighborSums").unsupported(context(FedGCN()))
    assert sums is not None and "one tensor with one entry per message" in sums
    nothing = ClippedNoise().unsupported(context(FedGCN()))
    assert nothing is not None and "sends no Latents" in nothing
    client = ClippedNoise(unit="edge").unsupported(context(NFedGNN()))
    assert client is not None and "not on one edge" in client
    rows = Gaussian(on="Latents").unsupported(context(NFedGNN()))
    assert rows is not None and "clip the latents themselves" in rows
    with pytest.raises(FglauditError, match="cannot be calibrated"):
        ClippedNoise().bind(context(FedGCN()))
    for settings in ({"mechanism": "uniform"}, {"clip": 0.0}, {"clip": math.inf}, {"epsilon": 0.0}, {"on": "Latent"}):
        with pytest.raises(FglauditError):
            ClippedNoise(**settings)
