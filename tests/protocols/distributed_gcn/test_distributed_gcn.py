"""Distributed GCN and BDS-GCN: the same training as on one machine, what is sent, samples that are right on average."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.errors import FglauditError
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import HiddenGradients, HiddenStates, RawFeatures
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.distributed_gcn.bds_gcn import BDSGCN
from fglaudit.protocols.distributed_gcn.boundary import Boundary
from fglaudit.protocols.distributed_gcn.client_rows import ClientRows
from fglaudit.protocols.distributed_gcn.distributed_gcn import DistributedGCN
from fglaudit.rng import derive, split
from fglaudit.testing import CPU, check_protocol, example_graph, record
from fglaudit.view import Observer

WIRE = Observer(wire=True)


@pytest.mark.parametrize("nodes", [60, 150])
def test_without_dropout_it_is_the_centralized_gcn(nodes: int) -> None:
    graph = example_graph(nodes=nodes)
    shared = record(DistributedGCN(rounds=15, dropout=0.0), graph).trained
    whole = record(GCN(rounds=15, dropout=0.0), graph).trained
    for ours, theirs in zip(shared.weights.values(), whole.weights.values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.accuracy, whole.accuracy, equal_nan=True)
    every = record(BDSGCN(rounds=15, dropout=0.0, rate=1.0), graph).trained
    for ours, theirs in zip(every.weights.values(), shared.weights.values(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_hidden_states_are_those_of_the_whole_graph() -> None:
    graph = example_graph()
    run = record(DistributedGCN(rounds=1), graph)
    layout = gcn_layout(graph.num_features, 16, graph.num_classes, 2)
    first = next(iter(unflatten(glorot(layout, split(derive(0, "train"), "weights"))[None], layout).values()))[0]
    adjacency = torch.eye(graph.num_nodes)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    hidden = torch.relu(scale[:, None] * adjacency * scale @ graph.x @ first)
    sent = next(iter(run.view(WIRE).messages.of(HiddenStates))).payload
    assert isinstance(sent, HiddenStates)
    torch.testing.assert_close(sent.values, hidden[sent.nodes], rtol=1e-4, atol=1e-5)


def test_who_sends_what() -> None:
    """Rows and hidden states go from owners to clients with a neighbour, gradients back, about the same nodes."""
    graph = example_graph()
    view, owner = record(DistributedGCN(rounds=2), graph).view(WIRE), graph.owner()
    (rows,) = view.messages.of(RawFeatures)
    states, gradients = list(view.messages.of(HiddenStates)), list(view.messages.of(HiddenGradients))
    assert [batch.round for batch in (rows, *states, *gradients)] == [0, 1, 2, 3, 1, 2]
    for batch in (rows, *states):
        nodes = batch.payload.tensors()["nodes"]
        assert torch.equal(owner[nodes], batch.senders[batch.entry_messages()])
        assert not bool((owner[nodes] == batch.receivers[batch.entry_messages()]).any())
    assert torch.equal(gradients[0].senders, states[0].receivers)
    assert torch.equal(gradients[0].payload.tensors()["nodes"], states[0].payload.tensors()["nodes"])
    wanted = {(int(owner[i]), int(j)) for i, j in graph.edge_index.T.tolist() if owner[i] != owner[j]}
    receiver = rows.receivers[rows.entry_messages()].tolist()
    assert {(k, j) for k, j in zip(receiver, rows.payload.tensors()["nodes"].tolist(), strict=True)} == wanted


def test_a_sample_is_right_on_average_and_rows_are_sent_once() -> None:
    graph = example_graph()
    clients = [graph.client(k) for k in range(graph.num_clients)]
    boundary = Boundary.of(KeptEdges.of(clients, graph.degrees()), len(clients), CPU)
    rows = torch.rand(graph.num_nodes + len(boundary.node), 3)
    whole = boundary.propagation(boundary.sample(torch.ones_like(boundary.node, dtype=torch.bool)), 1.0) @ rows
    rng = derive(0, "samples")
    draws = []
    for _ in range(4000):
        sample = boundary.sample(torch.rand(len(boundary.node), generator=rng) < 0.5)
        draws.append(boundary.propagation(sample, 0.5) @ rows)
    torch.testing.assert_close(torch.stack(draws).mean(0), whole, rtol=0.05, atol=0.02)
    view = record(BDSGCN(rounds=6), graph).view(WIRE)
    sent = [(b.receivers[b.entry_messages()], b.payload.tensors()["nodes"]) for b in view.messages.of(RawFeatures)]
    pairs = torch.stack([torch.cat(part) for part in zip(*sent, strict=True)])
    assert len(sent) > 2 and len(torch.unique(pairs, dim=1)[0]) == len(pairs[0]) == len(boundary.node)
    states = [len(b.payload.tensors()["nodes"]) for b in view.messages.of(HiddenStates)]
    assert states[-1] == len(boundary.node) and all(count < len(boundary.node) for count in states[:-1])


def test_rows_are_multiplied_by_their_own_clients_weights() -> None:
    client = torch.tensor([1, 0, -1, 1, 2])
    rows, weights = torch.rand(5, 4), torch.rand(3, 4, 2)
    places = ClientRows.of(client, 3, CPU)
    expected = torch.stack([r @ weights[k] if k >= 0 else torch.zeros(2) for r, k in zip(rows, client, strict=True)])
    torch.testing.assert_close(places.product(rows, weights), expected)
    torch.testing.assert_close(places.product(places.blocks(rows), weights), expected)


def test_clients_without_neighbours_elsewhere_send_nothing() -> None:
    graph = example_graph()
    graph = dataclasses.replace(graph, edge_index=graph.edge_index[:, :0])
    view = record(DistributedGCN(rounds=2), graph).view(WIRE)
    assert not list(view.messages.of(HiddenStates)) and not list(view.messages.of(RawFeatures))


@pytest.mark.parametrize(("field", "value"), [("rate", 0.0), ("rounds", 0), ("dropout", 1.0), ("learning_rate", -1.0)])
def test_bad_fields(field: str, value: float) -> None:
    with pytest.raises(FglauditError, match=field):
        BDSGCN(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [DistributedGCN(rounds=4), BDSGCN(rounds=4)])
def test_protocol(protocol: DistributedGCN) -> None:
    check_protocol(protocol, example_graph())
