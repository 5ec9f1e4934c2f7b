"""Clients a few at a time train the models that all clients train at once, in memory that no client adds rows to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from fedgcn_runs import CPU, PlainChannel
from places import on_devices, place
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fglaudit.federated import neighbor_sums
from fglaudit.federated.problem import Gathered
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import DefenseSession, LocalUpdate
from fglaudit.interfaces.outcomes import Trained
from fglaudit.nn import shared_rows
from fglaudit.nn.gcn import Field
from fglaudit.nn.shared_rows import SharedRows
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.channel import RecordingChannel


class OneMisled(PlainChannel):
    """Client 1 receives other sums than the others."""

    def send(self, batch: MessageBatch) -> Payload:
        payload = super().send(batch)
        if isinstance(payload, NeighborSums) and bool((batch.senders == SERVER).all()):
            misled = batch.receivers[batch.entry_messages()] == 1
            return NeighborSums(payload.nodes, payload.sums + misled.unsqueeze(1) * 0.5)
        return payload


class Summed(PlainChannel):
    """A defense that has the gradient of every example, and adds them."""

    def local_update(self) -> LocalUpdate | None:
        return lambda gradients: gradients.sum(0)


def real(graph: FederatedGraph) -> FederatedGraph:
    return dataclasses.replace(graph, x=torch.randn(graph.x.shape, generator=derive(5)), features=FeatureKind.REAL)


def sparse(graph: FederatedGraph) -> FederatedGraph:
    x = torch.zeros(graph.num_nodes, 400)
    x[:, :24] = graph.x
    return dataclasses.replace(graph, x=x)


GRAPHS = {"real": real(example_graph(clients=5)), "sparse": sparse(example_graph(clients=5))}


def trained(protocol: FedGCN, graph: FederatedGraph, channel: PlainChannel) -> Trained:
    return protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)


def check_alike(few: Trained, whole: Trained) -> None:
    for name, weight in whole.weights.items():
        assert torch.allclose(few.weights[name], weight, atol=1e-5)
    assert torch.equal(few.accuracy.nan_to_num(-1), whole.accuracy.nan_to_num(-1))
    assert few.right is not None and whole.right is not None and torch.equal(few.right, whole.right)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {"hops": 0},
        {"hops": 1, "optimizer": "adam", "learning_rate": 0.01},
        {"hops": 2},
        {"hops": 2, "aggregate": "counts", "participation": 0.6, "weighting": "train-nodes"},
        {"hops": 3, "layers": 3, "dropout": 0.0},
        {"hops": 1, "layers": 1},
        {"hops": 1, "layers": 3, "network": "gcn-batchnorm", "dropout": 0.0},
        {"hops": 2, "aggregate": "counts", "network": "sage"},
    ],
    ids=str,
)
def test_few_clients_at_a_time_train_the_same_model(
    monkeypatch: pytest.MonkeyPatch, graph: str, clients: int, settings: Mapping[str, Any]
) -> None:
    """Dropout is drawn alike with two layers, where one is dropped."""
    drawn = GRAPHS[graph]
    protocol, before, after = FedGCN(rounds=4, **settings), PlainChannel(), PlainChannel()
    whole = trained(protocol, drawn, before)
    of_all = sum(len(nodes) for nodes in drawn.clients) * drawn.num_features * 4
    reach = 1.2 if protocol.hops < 2 else 4
    monkeypatch.setattr(neighbor_sums, "BUCKET_BYTES", clients * reach * of_all // drawn.num_clients)
    monkeypatch.setattr(shared_rows, "CHUNK_BYTES", 1000)
    few = trained(protocol, drawn, after)
    check_alike(few, whole)
    for up in (True, False):
        first, second = before.sums(up=up), after.sums(up=up)
        assert first.keys() == second.keys()
        assert all(torch.allclose(second[key], row) for key, row in first.items())


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_each_client_trains_on_what_it_received(
    monkeypatch: pytest.MonkeyPatch, graph: str, aggregate: Weights
) -> None:
    protocol = FedGCN(hops=2, rounds=3, aggregate=aggregate)
    whole, honest = (trained(protocol, GRAPHS[graph], channel) for channel in (OneMisled(), PlainChannel()))
    monkeypatch.setattr(neighbor_sums, "BUCKET_BYTES", 1)
    few = trained(protocol, GRAPHS[graph], OneMisled())
    check_alike(few, whole)
    assert not torch.allclose(few.weights["layers.0.weight"], honest.weights["layers.0.weight"], atol=1e-4)


def test_gradients_of_single_examples_are_all_clients_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = FedGCN(rounds=2, dropout=0.0)
    whole = trained(protocol, GRAPHS["real"], PlainChannel())
    monkeypatch.setattr(neighbor_sums, "BUCKET_BYTES", 1)
    check_alike(trained(protocol, GRAPHS["real"], Summed()), whole)


@on_devices
def test_few_clients_at_a_time_train_on_a_device(monkeypatch: pytest.MonkeyPatch, where_to: str) -> None:
    monkeypatch.setattr(neighbor_sums, "BUCKET_BYTES", 1)
    there, protocol = place(where_to), FedGCN(rounds=2, dropout=0.0)
    on_cpu = trained(protocol, GRAPHS["real"], PlainChannel())
    with there.used():
        found = protocol.train(GRAPHS["real"], PlainChannel(), rng=derive(0, "train"), device=there.device)
    for name, weight in on_cpu.weights.items():
        assert torch.allclose(found.weights[name], weight, atol=0 if there.exact else 1e-4)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the bytes of the largest array that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return out


def arrays(field: Field) -> Iterator[Tensor]:
    inputs = field.inputs
    assert isinstance(inputs, SharedRows)
    yield from (inputs.table, inputs.index, field.labels, field.mask)
    for matrix in (adjacency.forward for adjacency in field.adjacency if isinstance(adjacency, SparseMatrix)):
        yield from (matrix.crow_indices(), matrix.col_indices(), matrix.values())


def test_no_array_has_the_features_of_all_nodes_for_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest array is the server's total in float64, 8 bytes per node and feature; what is held in training is
    one table and, per client and node, an index, a weight and a label. Rows of all clients would be 4 bytes per client,
    node and feature: eight times the total."""
    clients, features, degree = 16, 128, 40
    monkeypatch.setattr(neighbor_sums, "BUCKET_BYTES", 1)
    monkeypatch.setattr(neighbor_sums, "BLOCK_ENTRIES", 512)
    for nodes in (200, 400):
        graph = dense_graph(nodes, degree, features, clients)
        channel = RecordingChannel(DefenseSession(), clients, derive(0, "defense"))
        with Largest() as largest:
            FedGCN(hops=2, rounds=2).train(graph, channel, rng=derive(0, "train"), device=CPU)
        data = Gathered.of([graph.client(k) for k in range(clients)], graph.degrees(), CPU)
        assert len(FedGCN(hops=2).held(data).node) > 0.8 * clients * nodes
        train, test = FedGCN(hops=2).fields(data, channel)
        held = {array.data_ptr(): array.numel() * array.element_size() for f in (*train, *test) for array in arrays(f)}
        whole = 4 * clients * nodes * features
        assert largest.bytes == 8 * nodes * features == whole // 8
        assert sum(held.values()) < whole // 4


def dense_graph(nodes: int, degree: int, features: int, clients: int) -> FederatedGraph:
    """Return a random graph on which almost every node is a neighbour of every client."""
    graph = example_graph(nodes=nodes, features=features, clients=clients)
    upper = (torch.rand(nodes, nodes, generator=derive(3)) < degree / nodes).triu(1)
    return dataclasses.replace(real(graph), edge_index=(upper | upper.T).nonzero().T.contiguous())
