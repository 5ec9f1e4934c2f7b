"""FedGCN's sums against hand-computed ones: what is sent, whom it reaches, and how far one row moves it."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fedgcn_runs import CPU, PlainChannel, adjacency, path_graph
from torch import Tensor
from torch.nn import functional

from fglaudit.federated import neighbor_sums as sums_module
from fglaudit.graph import ClientGraph, FeatureKind, Graph, canonical_edges, federate
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.view import Observer


def assert_rows(rows: dict[tuple[int, int], Tensor], expected: dict[tuple[int, int], list[float]]) -> None:
    assert list(rows) == list(expected)
    for key, row in expected.items():
        assert torch.allclose(rows[key], torch.tensor(row, dtype=torch.float32), atol=1e-7), key


def test_counts_messages_by_hand() -> None:
    channel = PlainChannel()
    FedGCN(hops=1, aggregate="counts").pretrain(path_graph(), channel, CPU)
    assert_rows(
        channel.sums(up=True),
        {
            (0, 0): [1, 1, 0, 0],
            (0, 1): [1, 1, 0, 0],
            (0, 2): [0, 1, 0, 0],
            (1, 1): [0, 0, 1, 0],
            (1, 2): [0, 0, 1, 1],
            (1, 3): [0, 0, 1, 1],
        },
    )
    assert_rows(
        channel.sums(up=False),
        {(0, 0): [1, 1, 0, 0], (0, 1): [1, 1, 1, 0], (1, 2): [0, 1, 1, 1], (1, 3): [0, 0, 1, 1]},
    )


def test_normalised_messages_by_hand() -> None:
    channel = PlainChannel()
    FedGCN(hops=2).pretrain(path_graph(), channel, CPU)
    half, third, mixed = 1 / 2, 1 / 3, 1 / math.sqrt(6)
    assert_rows(
        channel.sums(up=False),
        {
            (0, 0): [half, mixed, 0, 0],
            (0, 1): [mixed, third, third, 0],
            (0, 2): [0, third, third, mixed],
            (1, 1): [mixed, third, third, 0],
            (1, 2): [0, third, third, mixed],
            (1, 3): [0, 0, mixed, half],
        },
    )


def test_zero_hops_send_no_sums() -> None:
    channel = PlainChannel()
    FedGCN(hops=0, rounds=1).train(path_graph(), channel, rng=derive(0), device=CPU)
    assert {type(batch.payload) for batch in channel.sent} == {ModelUpdate}


def test_an_edge_counts_if_its_receiver_keeps_it() -> None:
    channel = PlainChannel(dropped=((1, 2),))
    FedGCN(hops=1, aggregate="counts").pretrain(path_graph(), channel, CPU)
    received = channel.sums(up=False)
    assert received[0, 1].tolist() == [1, 1, 0, 0]
    assert received[1, 2].tolist() == [0, 1, 1, 1]
    assert (1, 1) not in channel.sums(up=True)


def test_counts_of_binary_features_are_integers() -> None:
    graph = example_graph()
    channel = PlainChannel()
    FedGCN(hops=1, aggregate="counts").pretrain(graph, channel, CPU)
    expected = adjacency(graph, counts=True) @ graph.x.double()
    for (_, node), row in channel.sums(up=False).items():
        assert torch.equal(row.double(), expected[node])
    for row in channel.sums(up=True).values():
        assert torch.equal(row, row.round())


def test_messages_in_buckets_train_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graph()
    at_once, in_buckets = PlainChannel(), PlainChannel()
    first = FedGCN(rounds=2).train(graph, at_once, rng=derive(0), device=CPU)
    monkeypatch.setattr(sums_module, "BUCKET_BYTES", 1)
    monkeypatch.setattr(sums_module, "CHUNK_BYTES", 8 * graph.num_features * 7)
    second = FedGCN(rounds=2).train(graph, in_buckets, rng=derive(0), device=CPU)
    assert len(in_buckets.sent) == len(at_once.sent) + 2 * (graph.num_clients - 1)
    for direction in (True, False):
        one, other = at_once.sums(up=direction), in_buckets.sums(up=direction)
        assert list(one) == list(other)
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)


@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_sums_of_very_large_graphs_are_accumulated_in_float32(
    monkeypatch: pytest.MonkeyPatch, aggregate: Weights
) -> None:
    graph = example_graph()
    precise, fast = PlainChannel(), PlainChannel()
    FedGCN(aggregate=aggregate).pretrain(graph, precise, CPU)
    monkeypatch.setattr(sums_module, "PRECISE_WORK", 0)
    FedGCN(aggregate=aggregate).pretrain(graph, fast, CPU)
    rows = fast.sums(up=True)
    for key, row in precise.sums(up=True).items():
        assert (
            torch.equal(rows[key], row) if aggregate == "counts" else torch.allclose(rows[key], row, rtol=1e-6, atol=0)
        )


@pytest.mark.parametrize("protocol", [FedGCN(hops=h) for h in (0, 1, 2, 3)])
def test_exposed_nodes(protocol: FedGCN) -> None:
    graph = example_graph(clients=6)
    power = torch.matrix_power(adjacency(graph, counts=True), protocol.hops)
    own = graph.clients[2]
    reached = (power[own] > 0).any(0)
    reached[own] = False
    assert torch.equal(protocol.exposed(graph, Observer(parties=(2,))), reached.nonzero().squeeze(1))
    server = protocol.exposed(graph, Observer(parties=(SERVER, 2)))
    assert len(server) == (graph.num_nodes - len(own) if protocol.hops else 0)
    assert len(protocol.exposed(graph, Observer(wire=True))) == (graph.num_nodes if protocol.hops else 0)


def test_stated_gain_bounds_every_column() -> None:
    for seed in range(5):
        graph = example_graph(seed=seed)
        for aggregate in ("normalised", "counts"):
            (release,) = FedGCN(aggregate=aggregate).releases(graph)
            largest = float(adjacency(graph, counts=aggregate == "counts").norm(dim=0).max())
            assert release.gain is not None and largest <= release.gain + 1e-12
            if aggregate == "counts":
                assert release.gain == pytest.approx(largest)
    assert FedGCN(hops=0).releases(graph) == ()


def test_changing_one_row_moves_the_uploads_by_the_column_norm() -> None:
    graph = example_graph()
    moved = graph.x.clone()
    moved[7] += functional.normalize(torch.rand(graph.num_features, generator=derive(3)), dim=0)
    before, after = PlainChannel(), PlainChannel()
    FedGCN().pretrain(graph, before, CPU)
    FedGCN().pretrain(dataclasses.replace(graph, x=moved, features=FeatureKind.REAL), after, CPU)
    new = after.sums(up=True)
    change = torch.stack([new[key] - row for key, row in before.sums(up=True).items()]).norm()
    assert float(change) == pytest.approx(float(adjacency(graph)[:, 7].norm()), rel=1e-4)


def test_a_defense_that_hides_a_hub_does_not_raise_the_gain() -> None:
    """A hub that drops its own edges and states degree 0 still enters every leaf's sum."""
    leaves = torch.arange(1, 13)
    edges = canonical_edges(torch.stack([torch.zeros_like(leaves), leaves]), 13)
    every = torch.ones(13, dtype=torch.bool)
    graph = federate(
        Graph(torch.eye(13), leaves.new_zeros(13), edges, "star"), [torch.tensor([0]), leaves], every, every, every
    )

    class Hiding(PlainChannel):
        def prepare(self, client: ClientGraph) -> ClientGraph:
            if client.client == 1:
                return client
            return dataclasses.replace(
                client, boundary=client.boundary[:, :0], degrees=torch.zeros_like(client.degrees)
            )

    channel = Hiding()
    FedGCN().pretrain(graph, channel, CPU)
    hub = torch.stack([row[0] for row in channel.sums(up=True).values()]).norm()
    (release,) = FedGCN().releases(graph)
    assert release.gain is not None and 0.5 < float(hub) <= release.gain
