"""FedGAT against dense graph attention, and against itself on the other training path."""

from __future__ import annotations

import dataclasses
import math
import warnings

import pytest
import torch
from fedgat_runs import CPU, PROTOCOLS, SMALL, mixed_graph, quiet, recording, train
from torch import Tensor
from torch.nn import functional

from fglaudit.graph import Graph, canonical_edges, federate
from fglaudit.nn.gat import GatShape, initial_model, layer_weights, project, unit_ball
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.fedgat import masked_layer
from fglaudit.protocols.fedgat.fedgat import FedGAT, Remote, Variant
from fglaudit.protocols.fedgat.gat_training import run_layers
from fglaudit.protocols.fedgat.masked_layer import MaskedLayer
from fglaudit.rng import derive, split
from fglaudit.testing import check_protocol
from fglaudit.view import Observer


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_both_paths_give_the_same_loss_and_gradients(variant: Variant, remote: Remote, layers: int) -> None:
    graph, found = mixed_graph(), []
    for path in ("moments", "matrices"):
        protocol = FedGAT(variant=variant, remote=remote, layers=layers, path=path, **SMALL)
        training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
        models = initial.expand(graph.num_clients, -1).clone()
        models += 0.05 * torch.randn(models.shape, generator=derive(1, "models"), dtype=models.dtype)
        training._predict(0, models)
        weights = {name: w.clone().requires_grad_() for name, w in unflatten(models, training.layout).items()}
        loss = training.loss(weights)
        found.append((loss.detach(), torch.autograd.grad(loss, list(weights.values()))))
    (loss, gradients), (other, others) = found
    assert abs(loss - other) <= 1e-6 * loss.abs()
    for name, gradient, compared in zip(weights, gradients, others, strict=True):
        assert gradient.norm() > 0, name
        assert (gradient - compared).norm() <= 1e-6 * gradient.norm(), name


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("noisy", [False, True])
def test_messages_evaluated_in_pieces_give_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, variant: Variant, noisy: bool
) -> None:
    graph = mixed_graph()
    protocol = FedGAT(variant=variant, path="matrices", **SMALL)
    training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
    first = training.problem.test.first
    assert isinstance(first, MaskedLayer)
    first = dataclasses.replace(first, batches=[dataclasses.replace(b, noisy=noisy) for b in first.batches])
    models = initial.expand(graph.num_clients, -1)
    layer = layer_weights(unflatten(models, training.layout))[0]
    whole = first(layer)  # with gradients: all messages of a batch at once
    assert bool((whole != 0).any())
    for numbers in (1, 40, 2**22):
        monkeypatch.setattr(masked_layer, "AT_ONCE", numbers)
        with torch.no_grad():
            assert torch.equal(first(layer), whole)
            share = first.outside(layer)
        assert 0 <= float(share) <= 1


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
def test_the_matrix_path_alone_reproduces_a_run(variant: Variant, remote: Remote) -> None:
    graph = mixed_graph(torch.float32)
    protocol = FedGAT(
        variant=variant, remote=remote, **SMALL | {"rounds": 10, "optimizer": "sgd", "learning_rate": 1.0}
    )
    heard, silent = recording(graph), quiet(graph)
    full, fast = train(protocol, graph, heard), train(protocol, graph, silent)
    assert any(entry.payload == protocol.masked.__name__ for entry in heard.transcript.entries)  # type: ignore[union-attr]
    assert torch.equal(full.accuracy_global, fast.accuracy_global)
    for name, weight in full.weights.items():
        torch.testing.assert_close(weight, fast.weights[name], atol=2e-5, rtol=1e-4)
    assert torch.equal(heard.bytes_down, silent.bytes_down) and torch.equal(heard.bytes_up, silent.bytes_up)


@pytest.mark.parametrize(
    "protocol", PROTOCOLS, ids=lambda p: f"{p.name}-{getattr(p, 'variant', '')}-{getattr(p, 'remote', '')}"
)
def test_protocols_keep_their_promises(protocol: FedGAT | GAT | DistGAT) -> None:
    check_protocol(protocol, mixed_graph(torch.float32))


def dense_gat(x: Tensor, edge_index: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """A two-layer GAT with exact attention, by dense matrices; weights of one model, heads as loops."""
    adjacency = torch.eye(len(x), dtype=torch.bool)
    adjacency[edge_index[0], edge_index[1]] = True

    def layer(h: Tensor, index: int) -> list[Tensor]:
        weight, own, neighbor = (
            weights[f"layers.{index}.{part}"] for part in ("weight", "attention_own", "attention_neighbor")
        )
        outputs = []
        for head in range(len(own)):
            z = h @ weight[:, head * own.shape[1] : (head + 1) * own.shape[1]]
            scores = functional.leaky_relu((z @ own[head]).unsqueeze(1) + z @ neighbor[head], 0.2)
            outputs.append(scores.masked_fill(~adjacency, -math.inf).softmax(1) @ z)
        return outputs

    hidden = functional.elu(torch.cat(layer(x, 0), 1))
    return torch.stack(layer(hidden, 1)).mean(0)


@pytest.mark.parametrize("output_heads", [1, 3])
def test_fedgat_converges_to_dense_graph_attention(output_heads: int) -> None:
    graph = mixed_graph()
    errors = []
    for degree in (8, 32, 128):
        protocol = FedGAT(degree=degree, output_heads=output_heads, remote="matrices", **SMALL)
        training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
        models = initial.expand(graph.num_clients, -1)
        weights = unflatten(models, training.layout)
        outputs = run_layers(training.problem.test, weights, lambda layer, own: own.flatten(0, 1)[:0])
        one = {name: w[0] for name, w in weights.items()}
        exact = dense_gat(unit_ball(graph.x), graph.edge_index, one)
        targets = training.problem.test.field.outputs[-1]
        errors.append(float((outputs.flatten(0, 1)[targets.place] - exact[targets.node]).abs().max()))
    assert errors[0] < 0.02 and errors[2] < errors[0] / 4


def test_gat_is_dense_graph_attention() -> None:
    """One gradient step of the centralized GAT is the step of the dense one."""
    graph = mixed_graph()
    step = {"rounds": 1, "optimizer": "sgd", "learning_rate": 0.3, "bounds": "none"}
    protocol = GAT(weight_decay=0.0, **SMALL | step)
    start = initial_model(GatShape(2, 2, 3, 1).layout(graph.num_features, graph.num_classes), _stream("weights"))
    layout = protocol.shape().layout(graph.num_features, graph.num_classes)
    weights = {n: w[0].double().requires_grad_() for n, w in unflatten(start.unsqueeze(0), layout).items()}
    logits = dense_gat(unit_ball(graph.x), graph.edge_index, weights)
    nodes = torch.cat([ids[mask] for ids, mask in zip(graph.clients, graph.train, strict=True)])
    functional.cross_entropy(logits[nodes], graph.y[nodes]).backward()  # type: ignore[no-untyped-call]
    trained = train(protocol, graph)
    for name, weight in weights.items():
        assert weight.grad is not None
        torch.testing.assert_close(trained.weights[name], (weight - 0.3 * weight.grad).detach(), atol=1e-9, rtol=1e-6)


def _stream(purpose: str) -> torch.Generator:
    return split(derive(0, "train"), purpose)


def test_dist_gat_is_fedgat_without_cross_client_edges() -> None:
    graph = mixed_graph()
    owner = graph.owner()
    inner = owner[graph.edge_index[0]] == owner[graph.edge_index[1]]
    alone = dataclasses.replace(graph, edge_index=graph.edge_index[:, inner])
    a, b, c = train(DistGAT(**SMALL), graph), train(DistGAT(**SMALL), alone), train(FedGAT(degree=300, **SMALL), alone)
    for name, weight in a.weights.items():
        assert torch.equal(weight, b.weights[name])
        torch.testing.assert_close(weight, c.weights[name], atol=0.05, rtol=0.05)


def test_weights_keep_the_bounds() -> None:
    graph = mixed_graph()
    for bounds, layers in (("all", (0, 1)), ("first-layer", (0,))):
        trained = train(FedGAT(**SMALL | {"learning_rate": 0.5, "bounds": bounds}), graph)
        for index in layers:
            own = trained.weights[f"layers.{index}.attention_own"]
            weight = trained.weights[f"layers.{index}.weight"].view(-1, *own.shape)
            assert torch.linalg.matrix_norm(weight.transpose(0, 1), 2).max() <= 1 + 1e-6
            assert own.norm(dim=1).max() <= 1 + 1e-6
    weights = {"w": torch.full((1, 2, 2), 0.1), "a": torch.full((1, 1, 2), 0.1), "b": torch.full((1, 1, 2), 0.1)}
    kept = {name: w.clone() for name, w in weights.items()}
    project(weights, 1)
    assert all(torch.equal(weights[name], kept[name]) for name in weights)  # within the bounds nothing moves


def test_scores_kept_in_the_domain() -> None:
    """``||W a_1|| + ||W a_2||`` bounds every score of rows with norm at most 1."""
    graph, reach = mixed_graph(), []
    for bounds in ("scores", "none"):
        protocol = FedGAT(domain=0.2, **SMALL | {"bounds": bounds, "learning_rate": 0.1})
        with warnings.catch_warnings():
            warnings.simplefilter("error" if bounds == "scores" else "ignore")
            trained = train(protocol, graph)
        first = layer_weights({name: w.unsqueeze(0) for name, w in trained.weights.items()})[0]
        own, neighbor = first.score_vectors()
        reach.append(float((own.norm(dim=-1) + neighbor.norm(dim=-1)).max()))
    assert reach[0] <= 0.2 + 1e-9 < reach[1]


def test_fedprox_pulls_towards_the_global_model() -> None:
    graph = mixed_graph()
    moved = []
    for mu in (0.0, 5.0):
        steps = {"rounds": 1, "local_steps": 20, "optimizer": "sgd", "learning_rate": 0.1}
        protocol = FedGAT(proximal=mu, weight_decay=0.0, **SMALL | steps | {"bounds": "none"})
        _, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
        final = torch.cat([w.flatten() for w in train(protocol, graph).weights.values()])
        moved.append(float((final - initial).norm()))
    assert 0 < moved[1] < moved[0] / 2


@pytest.mark.parametrize("kind", [FedGAT, DistGAT])
def test_a_client_that_is_not_sampled_does_not_train(kind: type[FedGAT | DistGAT]) -> None:
    """Adam's first step moves every weight by the learning rate, whatever its gradient: so does a client's first upload
    in whatever round it comes."""
    graph, settings = mixed_graph(), {"rounds": 8, "weight_decay": 0.0, "bounds": "none", "participation": 0.3}
    channel = recording(graph)
    protocol = kind(**SMALL | settings)
    protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
    assert channel.transcript is not None
    received = torch.empty(0)
    moves: dict[int, tuple[int, Tensor]] = {}
    for batch in channel.transcript.seen_by(Observer(parties=(SERVER,))).of(ModelUpdate):
        assert isinstance(batch.payload, ModelUpdate)
        if batch.senders[0] == SERVER:
            received = batch.payload.vector[0]
        else:
            (client,) = batch.senders.tolist()
            moves.setdefault(client, (batch.round, (batch.payload.vector[0] - received).abs()))
    assert len(moves) == 3 and max(round for round, _ in moves.values()) > 1
    for _, move in moves.values():  # where a gradient is next to nothing, less
        whole = (move / protocol.learning_rate - 1).abs() < 1e-3
        assert whole.sum() > 0.8 * len(move)


def test_exposed_nodes() -> None:
    """0 - 1 - 2 - 3, one client per node."""
    edges = canonical_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    every = torch.ones(4, dtype=torch.bool)
    clients = [torch.tensor([k]) for k in range(4)]
    graph = federate(Graph(torch.eye(4), torch.tensor([0, 1, 0, 1]), edges, "path"), clients, every, every, every)
    first = Observer(parties=(0,))
    assert FedGAT(remote="matrices").exposed(graph, first).tolist() == [1, 2]
    assert FedGAT().exposed(graph, first).tolist() == [1]
    assert FedGAT(remote="matrices").exposed(graph, Observer(parties=(SERVER, 0))).tolist() == [1, 2, 3]
    assert GAT().exposed(graph, first).tolist() == DistGAT().exposed(graph, first).tolist() == []


def test_validation_chooses_the_round() -> None:
    graph = mixed_graph()
    trained = train(FedGAT(choice="validation", **SMALL | {"rounds": 12, "learning_rate": 0.1}), graph)
    assert 0 <= trained.round < 12
    assert trained.whole_test_set == float(trained.accuracy_global[trained.round])


def test_without_validation_nodes_the_last_round_counts() -> None:
    graph = mixed_graph()
    graph = dataclasses.replace(graph, val=tuple(torch.zeros_like(mask) for mask in graph.val))
    trained = train(FedGAT(choice="validation", **SMALL), graph)
    assert trained.round == SMALL["rounds"] - 1
