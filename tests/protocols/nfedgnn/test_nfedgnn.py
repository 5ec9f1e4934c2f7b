"""nFedGNN and CNFGNN against N separate users with whole weight matrices, autograd and torch's own optimizers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from plain_users import PlainUsers
from user_graphs import GAT, GCN, user_graph

from fglaudit.errors import FglauditError
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, LatentGradients, Latents, MessageBatch, ModelUpdate, NeighborSums
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import check_protocol, example_graph, record
from fglaudit.view import Observer
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.transcript import Transcript, deserialise, serialise


@pytest.mark.parametrize("settings", [GCN, GAT, GCN | {"optimizer": "sgd"}, GAT | {"loss": "sum"}], ids=str)
def test_only_touched_columns_equal_whole_matrices(settings: dict[str, Any]) -> None:
    protocol = NFedGNN(smoothness=3.0, weight_decay=0.02, **settings)
    run = record(protocol, user_graph())
    plain = PlainUsers(run)
    seen = run.transcript.seen_by(Observer(parties=(SERVER,)))
    (start,) = seen.of(ModelUpdate)
    assert isinstance(start.payload, ModelUpdate)
    torch.testing.assert_close(start.payload.vector[3], plain.first.flatten())
    for up, down in zip(seen.of(Latents), seen.of(LatentGradients), strict=True):
        assert isinstance(up.payload, Latents) and isinstance(down.payload, LatentGradients)
        latents = plain.latents()
        torch.testing.assert_close(up.payload.values, latents, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(down.payload.values, plain.step(latents, range(12)), rtol=1e-9, atol=1e-11)
    for name, weight in plain.server.items():
        torch.testing.assert_close(run.trained.weights[name], weight.detach(), rtol=1e-9, atol=1e-11)
    assert run.trained.series["training_loss"].tolist() == pytest.approx(plain.losses, rel=1e-9)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_users_that_were_not_sampled_keep_everything(name: Optimizer) -> None:
    protocol = NFedGNN(participation=0.5, smoothness=1.0, optimizer=name, weight_decay=0.02, **(GCN | {"rounds": 6}))
    run = record(protocol, user_graph())
    plain = PlainUsers(run)
    held = torch.zeros(12, 4, dtype=torch.float64)
    seen = run.transcript.seen_by(Observer(parties=(SERVER,)))
    for up, down in zip(seen.of(Latents), seen.of(LatentGradients), strict=True):
        assert isinstance(up.payload, Latents) and isinstance(down.payload, LatentGradients)
        assert len(up.senders) == 6 and torch.equal(up.senders, down.receivers)
        held[up.senders] = plain.latents().detach()[up.senders]
        torch.testing.assert_close(up.payload.values, held[up.senders], rtol=1e-9, atol=1e-11)
        gradients = plain.step(held, up.senders.tolist())
        torch.testing.assert_close(down.payload.values, gradients[up.senders], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("settings", [GCN, GAT, GCN | {"optimizer": "sgd"}, GCN | {"keep_optimizer": False}], ids=str)
def test_cnfgnn_averages_whole_matrices(settings: dict[str, Any]) -> None:
    protocol = CNFGNN(weight_decay=0.02, **settings)
    run = record(protocol, user_graph())
    plain = PlainUsers(run)
    seen = run.transcript.seen_by(Observer(parties=(SERVER,)))
    models = [batch for batch in seen.of(ModelUpdate) if batch.round > 0]
    uploads, means = models[0::2], models[1::2]
    assert len(uploads) == len(means) == protocol.rounds
    for up, model, mean in zip(seen.of(Latents), uploads, means, strict=True):
        assert isinstance(up.payload, Latents)
        assert isinstance(model.payload, ModelUpdate) and isinstance(mean.payload, ModelUpdate)
        latents = plain.latents()
        torch.testing.assert_close(up.payload.values, latents, rtol=1e-9, atol=1e-11)
        plain.step(latents, range(12))
        stepped = torch.stack([w.detach() for w in plain.users])
        torch.testing.assert_close(model.payload.vector, stepped.flatten(1), rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(mean.payload.vector[5], stepped.mean(0).flatten(), rtol=1e-6, atol=1e-9)
        for weight in plain.users:
            weight.data.copy_(stepped.mean(0))
        if not protocol.keep_optimizer:
            plain.optimizers = [plain.user_optimizer(w) for w in plain.users]


@pytest.mark.parametrize("settings", [GCN, GAT | {"feature_dropout": 0.5}], ids=str)
def test_cnfgnn_trains_alike_when_nobody_listens(settings: dict[str, Any]) -> None:
    protocol, graph = CNFGNN(**settings), user_graph()
    heard = record(protocol, graph)
    silent = RecordingChannel(DefenseSession(), 12, derive(0, "defense"), Transcript(), Keep({Latents: None}))
    trained = protocol.train(graph, silent, rng=derive(0, "train"), device=torch.device("cpu"))
    for name, weight in heard.trained.weights.items():
        torch.testing.assert_close(trained.weights[name], weight, rtol=1e-9, atol=1e-11)
    assert torch.equal(silent.bytes_up, heard.channel.bytes_up) and torch.equal(
        silent.bytes_down, heard.channel.bytes_down
    )


@pytest.mark.parametrize(
    "protocol",
    [
        NFedGNN(**GCN),
        NFedGNN(**GAT),
        NFedGNN(**(GCN | {"dropout": 0.5}), feature_dropout=0.4, evaluation="clean", participation=0.6),
        NFedGNN(**GCN, initial_weights="private", optimizer="sgd", server_optimizer="sgd", smoothness=0.0),
        CNFGNN(**GCN),
        CNFGNN(**GAT, optimizer="sgd"),
    ],
    ids=str,
)
def test_conformance(protocol: FederatedProtocol) -> None:
    check_protocol(protocol, user_graph())


def test_bytes_follow_the_formula() -> None:
    graph = user_graph()
    graph = dataclasses.replace(graph, x=graph.x.float())
    sent = record(NFedGNN(**GCN), graph).channel
    assert sent.bytes_up.tolist() == [4 * 4 * 4] * 12  # 4 rounds of 4 latents of 4 bytes
    assert sent.bytes_down.tolist() == [4 * 4 * 4 + 24 * 4 * 4] * 12  # the same, and the first weights once
    private = record(NFedGNN(**GCN, initial_weights="private"), graph).channel
    assert private.bytes_down.tolist() == private.bytes_up.tolist() == [4 * 4 * 4] * 12
    clean = record(NFedGNN(**GCN, evaluation="clean"), graph).channel
    assert clean.bytes_up.tolist() == [2 * 4 * 4 * 4] * 12
    shared = record(CNFGNN(**GCN), graph).channel
    assert shared.bytes_up.tolist() == [4 * (4 + 24 * 4) * 4] * 12


def test_a_broadcast_is_stored_once() -> None:
    run = record(CNFGNN(**GCN), user_graph())
    (first, *_) = run.transcript.seen_by(Observer(parties=(SERVER,))).of(ModelUpdate)
    assert isinstance(first.payload, ModelUpdate)
    assert first.payload.vector.shape == (12, 96) and first.payload.vector.stride(0) == 0
    stored = run.transcript._blobs[0]
    assert len(stored) < 2 * 96 * 8


def test_repeated_entries_come_back_whole() -> None:
    parties, splits = torch.tensor([0, 1]), torch.tensor([0, 1, 3])
    rows = NeighborSums(torch.tensor([4, 5, 6]), torch.tensor([[1.0, 2.0]]).expand(3, 2))
    back = deserialise(serialise(MessageBatch(0, parties, parties + 1, rows, splits)), 0, "NeighborSums")
    assert isinstance(back.payload, NeighborSums)
    assert torch.equal(back.payload.nodes, rows.nodes) and torch.equal(back.payload.sums, rows.sums)
    part = back.select(torch.tensor([False, True]))
    assert isinstance(part.payload, NeighborSums) and torch.equal(part.payload.sums, rows.sums[1:])


def test_private_weights_are_never_sent_and_differ_by_user() -> None:
    x = torch.zeros(12, 24, dtype=torch.float64)
    x[:, 0] = 1
    run = record(NFedGNN(**GCN, initial_weights="private"), user_graph(x=x))
    seen = run.transcript.seen_by(Observer(parties=(SERVER,)))
    assert list(seen.of(ModelUpdate)) == []
    first = next(iter(seen.of(Latents))).payload
    assert isinstance(first, Latents)
    bound = math.sqrt(6 / (24 + 4))
    assert len(torch.unique(first.values[:, 0])) == 12 and bool((first.values.abs() <= bound).all())
    assert float(first.values.abs().max()) > 0.8 * bound


def test_feature_dropout_masks_afresh_every_round() -> None:
    x = torch.eye(12, 24, dtype=torch.float64) * 3
    frozen = GCN | {"learning_rate": 0.0, "optimizer": "sgd", "weight_decay": 0.0, "rounds": 40}
    run = record(NFedGNN(**frozen, feature_dropout=0.25, evaluation="clean"), user_graph(x=x))
    seen = run.transcript.seen_by(Observer(parties=(SERVER,)))
    latents = torch.stack([b.payload.values for b in seen.of(Latents) if isinstance(b.payload, Latents)])
    training, clean = latents[0::2], latents[1::2]
    assert torch.equal(clean, clean[:1].expand_as(clean))
    ratio = training / clean
    kept = (ratio - 1 / 0.75).abs() < 1e-9
    assert bool((kept | (ratio == 0)).all()) and bool((kept == kept[:, :, :1]).all())
    assert 0.70 < kept[:, :, 0].double().mean() < 0.80  # 480 draws: 2.5 standard deviations
    assert len(torch.unique(kept[:, :, 0].int(), dim=0)) > 30


def test_a_user_without_non_zero_features_is_noted() -> None:
    x = user_graph().x.clone()
    x[3] = 0
    run = record(NFedGNN(**GCN), user_graph(x=x))
    assert "1 of 12 users have no non-zero feature" in run.trained.notes[0]
    (first, *_) = run.transcript.seen_by(Observer(parties=(SERVER,))).of(Latents)
    assert isinstance(first.payload, Latents) and not bool(first.payload.values[3].any())


def test_the_server_has_the_training_labels_and_a_user_none() -> None:
    graph = user_graph()
    for protocol in (NFedGNN(**GCN), CNFGNN(**GCN)):
        train = torch.cat(graph.train).nonzero().squeeze(1)
        assert torch.equal(protocol.labelled(graph, Observer(parties=(SERVER, 2))), train)
        assert (
            len(protocol.labelled(graph, Observer(parties=(2,))))
            == len(protocol.labelled(graph, Observer(wire=True)))
            == 0
        )


def test_validation_may_choose_the_round() -> None:
    graph = user_graph(nodes=60)
    last = record(NFedGNN(**GCN), graph).trained
    best = record(NFedGNN(**GCN, choice="validation"), graph).trained
    assert torch.equal(last.accuracy_global, best.accuracy_global)
    assert last.round == -1 and 0 <= best.round < 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"smoothness": -0.1}, "smoothness"),
        ({"smoothness": math.nan}, "smoothness"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
        ({"split": "sage"}, "unknown split"),
        ({"initial_weights": "secret"}, "unknown initial_weights"),
        ({"evaluation": "none"}, "unknown evaluation"),
        ({"optimizer": "rmsprop"}, "unknown optimizer"),
        ({"server_optimizer": "rmsprop"}, "unknown server_optimizer"),
        ({"feature_dropout": 1.0}, "feature_dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"hidden": 0}, "hidden"),
        ({"rounds": 0}, "rounds"),
        ({"loss": "max"}, "unknown loss"),
        ({"choice": "best"}, "unknown choice"),
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        NFedGNN(**settings)


@pytest.mark.parametrize("kind", [NFedGNN, CNFGNN])
def test_graphs_that_do_not_fit_are_refused(kind: type[NFedGNN] | type[CNFGNN]) -> None:
    protocol, graph = kind(**GCN), user_graph()
    nowhere = tuple(torch.zeros(1, dtype=torch.bool) for _ in range(12))
    protocol.check(graph)
    with pytest.raises(FglauditError, match="one user per node"):
        protocol.check(example_graph())
    with pytest.raises(FglauditError, match="client k must hold node k"):
        protocol.check(dataclasses.replace(graph, clients=graph.clients[::-1]))
    with pytest.raises(FglauditError, match="training nodes"):
        protocol.check(dataclasses.replace(graph, train=nowhere))
    with pytest.raises(FglauditError, match="labels of its training nodes"):
        protocol.check(dataclasses.replace(graph, y=torch.full((12,), -1)))
    with pytest.raises(FglauditError, match="finite features"):
        protocol.check(dataclasses.replace(graph, x=torch.empty(12, 0), features=FeatureKind.BINARY))
    with pytest.raises(FglauditError, match="25 for 24 features"):
        kind(hidden=25).check(graph)
