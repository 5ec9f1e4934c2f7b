"""Gophormer's ego-graphs, proximities and network against dense computations, a baseline of FedGT."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from one_client import OneClient, clients_of, dense, normalised, random_weights
from torch.nn import functional

from fglaudit.nn.consistency import disagreement
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.protocols.baselines.ego_graphs import EgoGraphs
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.gophormer import Gophormer, Sequences
from fglaudit.protocols.fedgt.neighbor_sampling import find_candidates
from fglaudit.protocols.fedgt.proximity import Proximity
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record

CPU = torch.device("cpu")
NONE = Dropout(0, None)


def test_proximity_holds_powers_of_the_normalised_adjacency() -> None:
    graph = example_graph(nodes=45, clients=3)
    clients = clients_of(graph)
    clients[1] = dataclasses.replace(
        clients[1], edge_index=clients[1].edge_index[:, (clients[1].edge_index != 3).all(0)]
    )  # node 3 is isolated
    nodes = torch.randint(15, (3, 4, 6), generator=derive(0))
    whole_table = Proximity.of(clients, 3, CPU)
    found = whole_table.among(nodes)
    assert torch.equal(dataclasses.replace(whole_table, table=None).among(nodes), found)  # clients too large for one
    assert found.shape == (3, 4, 6, 6, 3)
    for k, client in enumerate(clients):
        whole = normalised(client)
        for power in range(3):
            value = torch.linalg.matrix_power(whole, power + 1).float()
            assert torch.allclose(found[k, ..., power], value[nodes[k].unsqueeze(2), nodes[k].unsqueeze(1)], atol=1e-6)
    assert float(Proximity.of(clients, 1, CPU).among(torch.tensor([[[3]]] * 3))[1]) == 1.0


def test_ego_graphs_are_drawn_hop_by_hop() -> None:
    graph = example_graph(nodes=60, clients=2)
    clients = clients_of(graph)
    around = EgoGraphs(
        Gophormer(1, 8, 2, 8, 0, 1),
        find_candidates(clients, "neighbors", 20, 1.0, derive(0)),
        Proximity.of(clients, 1, CPU),
        torch.ones(2, 30, dtype=torch.bool),
        hops=2,
        neighbors=3,
        test_samples=1,
    )
    rows = torch.stack([torch.randperm(30, generator=derive(0, k))[:7] for k in range(2)])
    valid = torch.ones(2, 7, dtype=torch.bool)
    valid[1, 4:] = False
    (batch,) = around.draw([rows], [valid], derive(1))
    nodes = batch.egos.nodes
    assert nodes.shape == (2, 7, 1 + 3 + 9) and torch.equal(nodes[:, :, 0], rows)
    for k, client in enumerate(clients):
        linked = dense(client) > 0
        linked |= torch.diag(~linked.any(1))  # a node without neighbours draws itself
        for i in range(7):
            center, first, second = nodes[k, i, 0], nodes[k, i, 1:4], nodes[k, i, 4:].view(3, 3)
            assert bool(linked[center, first].all()) and bool(linked[first.unsqueeze(1), second].all())
            seen: set[int] = set()
            for place, node in enumerate(nodes[k, i].tolist()):
                assert bool(batch.egos.repeated[k, i, place]) == (node in seen)
                seen.add(node)
        assert batch.reached[k].nonzero().flatten().tolist() == sorted(set(nodes[k][valid[k]].flatten().tolist()))
    assert not torch.equal(next(iter(around.draw([rows], [valid], derive(2)))).egos.nodes, nodes)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gophormer_node_by_node(layers: int) -> None:
    """Every sequence by itself, without its repeated nodes."""
    graph = example_graph(nodes=30, clients=2)
    clients = clients_of(graph)
    network = Gophormer(layers, 8, 2, 12, 2, 2)
    weights = random_weights(network.layout(5, 3), 2)
    inputs = torch.randn(2, 15, 8, generator=derive(0, "rows"), dtype=torch.float64)
    nodes = torch.randint(15, (2, 4, 6), generator=derive(0, "nodes"))
    proximity = Proximity.of(clients, 2, CPU)
    egos = Sequences(nodes, dataclasses.replace(proximity, values=proximity.values.double(), table=None), 2)
    found = network.logits(weights, inputs, egos, NONE)
    assert found.shape == (2, 4, 3)
    for k, client in enumerate(clients):
        model, whole = OneClient(weights, k), normalised(client)
        powers = [torch.eye(15, dtype=torch.float64), whole, whole @ whole]
        for i in range(4):
            distinct = list(dict.fromkeys(nodes[k, i].tolist()))
            rows = torch.cat([inputs[k, distinct], model.weights["global.weight"]])
            for layer in range(layers):
                name = f"layers.{layer}"
                b = model.weights[f"{name}.proximity.weight"]
                normed = model.norm(f"{name}.norm_attention", rows)
                query, key_value = model.affine(f"{name}.query", normed), model.affine(f"{name}.key_value", normed)
                bias = b[3].expand(len(rows), len(rows), 2).clone()
                for p, power in enumerate(powers):
                    bias[: len(distinct), : len(distinct)] += power[distinct][:, distinct].unsqueeze(2) * b[p]
                bias[: len(distinct), : len(distinct)] -= b[3]
                heads = []
                for h in range(2):
                    part, other = slice(4 * h, 4 * h + 4), slice(8 + 4 * h, 12 + 4 * h)
                    scores = query[:, part] @ key_value[:, part].T / 2 + bias[..., h]  # d_K = 4
                    heads.append(scores.softmax(1) @ key_value[:, other])
                rows = rows + model.affine(f"{name}.output", torch.cat(heads, 1))
                inner = functional.gelu(model.affine(f"{name}.expand", model.norm(f"{name}.norm_feed_forward", rows)))
                rows = rows + model.affine(f"{name}.contract", inner)
            expected = model.affine("classes", model.norm("norm", rows[0]))
            assert torch.allclose(found[k, i], expected, atol=1e-6)


def test_without_dropout_ego_graphs_are_classified_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of all pairs in all ego-graphs are never there at once; in training they are, for dropout's sake."""
    clients = clients_of(example_graph(nodes=30, clients=2))
    network = Gophormer(2, 8, 2, 12, 2, 2)
    weights = {name: weight.float() for name, weight in random_weights(network.layout(5, 3), 2).items()}
    inputs = torch.randn(2, 15, 8, generator=derive(0, "rows"))
    egos = Sequences(torch.randint(15, (2, 9, 6), generator=derive(0, "nodes")), Proximity.of(clients, 2, CPU), 2)
    whole, among = network.logits(weights, inputs, egos, NONE), Proximity.among
    looked_up: list[int] = []

    def counted(self: Proximity, nodes: torch.Tensor) -> torch.Tensor:
        looked_up.append(nodes.shape[1])
        return among(self, nodes)

    monkeypatch.setattr(Proximity, "among", counted)
    monkeypatch.setattr("fglaudit.nn.graph_transformer.SEQUENCES_IN_CACHE", 1)
    assert torch.allclose(network.logits(weights, inputs, egos, NONE), whole, atol=1e-6) and looked_up == [1] * 9
    looked_up.clear()
    network.logits(weights, inputs, egos, Dropout(0.5, derive(1)))
    assert looked_up == [9]


def test_gophormer_trains_without_global_nodes() -> None:
    run = record(FedAvgGophormer(hidden=8, heads=2, feed_forward=8, rounds=1, global_nodes=0), example_graph())
    assert all(bool(weight.isfinite().all()) for weight in run.trained.weights.values())


def test_several_ego_graphs_are_averaged_in_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graph(nodes=40, clients=2)
    clients = clients_of(graph)
    network = Gophormer(1, 8, 2, 8, 1, 1)
    weights = {name: weight.float() for name, weight in random_weights(network.layout(5, 3), 2).items()}
    inputs = torch.randn(2, 20, 8, generator=derive(0, "rows"))
    present = torch.ones(2, 20, dtype=torch.bool)
    candidates, proximity = find_candidates(clients, "neighbors", 20, 1.0, derive(0)), Proximity.of(clients, 1, CPU)
    around = EgoGraphs(network, candidates, proximity, present, hops=1, neighbors=2, test_samples=3)
    everyone, rng = torch.arange(20).expand(2, -1), derive(5)
    chances = [
        next(iter(around.draw([everyone], [present], rng))).logits(weights, inputs, inputs, NONE).softmax(2)
        for _ in range(3)
    ]
    found = around.everyone(derive(5)).logits(weights, inputs, inputs, NONE)
    assert torch.allclose(found.exp(), torch.stack(chances).mean(0), atol=1e-6)
    monkeypatch.setattr("fglaudit.nn.graph_transformer.NUMBERS_AT_ONCE", 1000)
    blocks = around.everyone(derive(5)).logits(weights, inputs, inputs, NONE)
    assert blocks.shape == found.shape and torch.allclose(blocks.exp().sum(2), torch.ones(2, 20))


def test_disagreement_is_the_distance_from_the_sharpened_mean() -> None:
    chances = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    mean = torch.tensor([0.7, 0.3])
    sharp = mean**2 / (mean**2).sum()
    expected = ((chances - sharp) ** 2).sum(1).mean()
    assert torch.allclose(disagreement(chances.log().view(1, 2, 1, 2), 0.5), expected.view(1, 1))
