"""Gophormer and GraphGPS as FedAvg baselines: GraphGPS node by node, FedAvg's formula, attacks, bad input."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from one_client import OneClient, clients_of, dense, random_weights
from torch import Tensor
from torch.nn import functional

from fglaudit import registry
from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.errors import FglauditError
from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.graph import Graph, canonical_edges, federate
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.graph_gps import GraphGPS, WholeGraph
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.baselines.performer import directions, linear_attention
from fglaudit.rng import derive
from fglaudit.testing import check_attack, check_defense, check_protocol, example_graph, record
from fglaudit.view import Observer

CPU = torch.device("cpu")
NONE = Dropout(0, None)
SMALL: dict[str, Any] = {"hidden": 8, "heads": 2, "feed_forward": 12}


def protocols(**settings: Any) -> tuple[SubgraphProtocol, ...]:
    return FedAvgGophormer(**(SMALL | settings)), FedAvgGraphGPS(**(SMALL | settings))


@pytest.mark.parametrize("protocol", protocols(rounds=2), ids=lambda p: p.name)
def test_conformance(protocol: SubgraphProtocol) -> None:
    check_protocol(protocol)


def test_conformance_with_several_ego_graphs() -> None:
    check_protocol(FedAvgGophormer(rounds=2, samples=2, consistency=0.5, test_samples=2, **SMALL))


@pytest.mark.parametrize("protocol", protocols(rounds=40, learning_rate=5e-3, dropout=0.2), ids=lambda p: p.name)
def test_they_learn(protocol: SubgraphProtocol) -> None:
    graph = example_graph(nodes=240, features=40, classes=2)
    assert record(protocol, graph).trained.client_mean > 0.75


@pytest.mark.parametrize("protocol", protocols(rounds=2), ids=lambda p: p.name)
def test_the_server_adds_the_mean_change(protocol: SubgraphProtocol) -> None:
    graph = example_graph()
    train = list(graph.train)
    train[0] = train[0] & (torch.arange(20) < 12)
    train[2] = torch.zeros_like(train[2])  # a client that has nothing to train on uploads nothing
    graph = dataclasses.replace(graph, train=tuple(train))
    run = record(protocol, graph)
    batches = [run.transcript.read(i) for i in range(len(run.transcript.entries))]
    down = [b.payload.tensors()["vector"] for b in batches if bool((b.senders == SERVER).all())]
    up = [b for b in batches if bool((b.receivers == SERVER).all())]
    assert len(down) == 3 and [b.senders.tolist() for b in up] == [[0, 1], [0, 1]]
    counts = torch.stack([mask.sum() for mask in train[:2]]).float()
    for round in range(2):
        mean = (counts / counts.sum()) @ up[round].payload.tensors()["vector"]
        assert torch.allclose(down[round + 1], (down[round][0] + mean).expand(3, -1), atol=1e-6)
        assert 0 < float(mean.abs().max()) < 0.01, "a change, not a model"


def test_graphgps_node_by_node() -> None:
    """GIN over a dense adjacency, and the Performer's kernel written out for every pair."""
    graph = example_graph(nodes=30, clients=2)
    clients = clients_of(graph)
    network = GraphGPS(2, 8, 2, 12, 16)
    weights = random_weights(network.layout(5, 3), 2)
    present = torch.ones(2, 15, dtype=torch.bool)
    present[1, 12:] = False  # as if client 1 were smaller
    clients[1] = dataclasses.replace(
        clients[1], edge_index=clients[1].edge_index[:, (clients[1].edge_index < 12).all(0)]
    )
    around = WholeGraph.of(network, clients, present)
    around = dataclasses.replace(around, adjacency=SparseMatrix(around.adjacency.forward.double()))
    inputs = torch.randn(2, 15, 8, generator=derive(0, "rows"), dtype=torch.float64)
    rows = torch.tensor([[3, 1], [7, 0]])
    (batch,) = around.draw([rows], [torch.ones_like(rows, dtype=torch.bool)], derive(0))
    found = batch.logits(weights, inputs, inputs, NONE)
    w = directions(16, 4).double()

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        """The estimate of ``exp(x y / sqrt(d_K))`` for all pairs."""
        part = [(z / 4**0.25 @ w.T - (z / 4**0.25).square().sum(1, keepdim=True) / 2).exp() for z in (x, y)]
        return part[0] @ part[1].T / 16

    for k, client in enumerate(clients):
        model, n = OneClient(weights, k), int(present[k].sum())
        x = inputs[k, :n]
        for layer in range(2):
            name = f"layers.{layer}"
            summed = (1 + model.weights[f"{name}.epsilon"]) * x + dense(client)[:n, :n] @ x
            sent = model.affine(f"{name}.message", model.affine(f"{name}.sum", summed).relu())
            local = model.norm(f"{name}.norm_local", x + sent)
            query, key_value = model.affine(f"{name}.query", x), model.affine(f"{name}.key_value", x)
            heads = []
            for part, other in ((slice(0, 4), slice(8, 12)), (slice(4, 8), slice(12, 16))):
                pairs = kernel(query[:, part], key_value[:, part])
                heads.append(pairs @ key_value[:, other] / pairs.sum(1, keepdim=True))
            far = model.norm(f"{name}.norm_attention", x + model.affine(f"{name}.output", torch.cat(heads, 1)))
            both = local + far
            inner = model.affine(f"{name}.expand", both).relu()
            x = model.norm(f"{name}.norm_feed_forward", both + model.affine(f"{name}.contract", inner))
        assert torch.allclose(found[k], model.affine("classes", x)[rows[k]], atol=1e-4)


def test_performer_is_close_to_softmax_attention() -> None:
    query, key, value = (0.5 * torch.randn(2, 2, 30, 8, generator=derive(0, name)) for name in "qkv")
    present = torch.ones(2, 30, dtype=torch.bool)
    present[1, 20:] = False
    exact = functional.scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None])
    errors = [
        float((linear_attention(query, key, value, present, r) - exact).norm() / exact.norm()) for r in (16, 4096)
    ]
    assert errors[1] < 0.1 and errors[1] < errors[0] / 3
    other = torch.where(present[:, None, :, None], key, 100.0)
    assert torch.allclose(
        linear_attention(query, other, value, present, 16), linear_attention(query, key, value, present, 16), atol=1e-5
    )
    w = directions(16, 8)
    assert torch.equal(w, directions(16, 8))
    assert torch.allclose(w[:8] @ w[:8].T, torch.diag(w[:8].square().sum(1)), atol=1e-4), "orthogonal in blocks"


def test_global_attention_takes_memory_linear_in_the_nodes() -> None:
    """What autograd keeps of a step: with twice the nodes, twice as much."""

    def kept(nodes: int) -> int:
        ring = torch.arange(nodes)
        client = example_graph().client(0)
        client = dataclasses.replace(client, edge_index=torch.stack([ring, (ring + 1) % nodes]))
        network = GraphGPS(1, 16, 2, 16, 16)
        weights = {name: weight.requires_grad_() for name, weight in random_weights(network.layout(4, 3), 1).items()}
        around = WholeGraph.of(network, [client], torch.ones(1, nodes, dtype=torch.bool))
        total = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel() if tensor.layout == torch.strided else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            weights = {name: weight.float() for name, weight in weights.items()}
            around.everyone(derive(0)).logits(weights, torch.randn(1, nodes, 16), torch.zeros(1, 0, 0), NONE)
        return total

    assert kept(4000) == pytest.approx(2 * kept(2000), rel=0.02)


APPLY = {"absent-words", "update-linkage", "update-similarity"}


def test_attacks_on_model_updates_apply_that_need_no_gcn() -> None:
    graph = example_graph(nodes=240, features=120, clients=4)
    attacks = [registry.load("attack", name) for name in registry.names("attack")]
    chosen = [attack for attack in attacks if attack.consumes == (ModelUpdate,)]
    assert {attack.name for attack in chosen} >= APPLY
    for protocol in protocols(rounds=4, local_epochs=2):
        view = record(protocol, graph).view(Observer(parties=(SERVER,), auxiliary=0.4))
        for attack in chosen:
            open_question = attack().unsupported(view)
            assert open_question is None or attack.name not in APPLY, attack.name
            if open_question is None:
                check_attack(attack(), view)


def test_noise_on_updates() -> None:
    for protocol in (*protocols(rounds=2), FedAvgSage(rounds=2, hidden=8)):
        (release,) = protocol.releases(example_graph())
        assert (release.payload, release.times, release.unit, release.gain) == (ModelUpdate, 2, "client", None)
        check_defense(ClippedLaplace(clip=0.002, scale=0.001, on=("ModelUpdate",)), protocol, quick=True)
    assert LocalGT().releases(example_graph()) == ()


def test_unequal_clients_with_isolated_nodes() -> None:
    """One client holds nearly everything, one has isolated nodes alone, fewer than encoding dimensions, and no training
    node."""
    edges = canonical_edges(torch.randint(40, (2, 90), generator=derive(0, "edges")), 50)
    x = (torch.rand(50, 12, generator=derive(0, "x")) < 0.3).float()
    mask = torch.arange(50) % 2 == 0
    graph = federate(
        Graph(x, torch.arange(50) % 3, edges, "odd"), [torch.arange(45), torch.arange(41, 50, 2)], mask, ~mask, ~mask
    )
    for protocol in protocols(rounds=2, batch_size=8):
        trained = record(protocol, graph).trained
        assert all(bool(torch.isfinite(weight).all()) for weight in trained.weights.values())
        assert trained.accuracy.shape == (2, 2)


@pytest.mark.parametrize(
    ("protocol", "arguments", "message"),
    [
        (FedAvgGophormer, {"hidden": 10}, "multiple of heads"),
        (FedAvgGophormer, {"neighbors": 40}, "candidates >= 40; got 32"),
        (FedAvgGophormer, {"neighbors": 0}, "neighbors >= 1"),
        (FedAvgGophormer, {"hops": 0}, "hops >= 1"),
        (FedAvgGophormer, {"global_nodes": -1}, "global_nodes >= 0"),
        (FedAvgGophormer, {"powers": 0}, "powers >= 1"),
        (FedAvgGophormer, {"samples": 0}, "samples >= 1"),
        (FedAvgGophormer, {"test_samples": 0}, "test_samples >= 1"),
        (FedAvgGophormer, {"consistency": -1.0}, "consistency >= 0; got -1"),
        (FedAvgGraphGPS, {"hidden": 10}, "multiple of heads"),
        (FedAvgGraphGPS, {"random_features": 0}, "random_features >= 1"),
        (FedAvgGraphGPS, {"encoding": -1}, "encoding >= 0"),
        (FedAvgGraphGPS, {"rounds": 0}, "rounds >= 1"),
    ],
)
def test_bad_settings(protocol: type[SubgraphProtocol], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        protocol(**arguments)


def test_diverging_training_is_an_error() -> None:
    for protocol in protocols(rounds=3, learning_rate=1e38):
        with pytest.raises(FglauditError, match="finite"):
            record(protocol)
