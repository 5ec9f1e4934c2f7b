"""FedGCN against a dense centralized GCN and a plain per-client federated loop."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fedgcn_runs import CPU, PlainChannel, adjacency
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate, whole
from fglaudit.nn.gcn import logits
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.local_gcn import LocalGCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive, split
from fglaudit.testing import check_protocol, example_graph


@pytest.mark.parametrize(("hops", "layers"), [(1, 1), (2, 2), (3, 3), (4, 3), (2, 1), (4, 4)])
def test_enough_hops_equal_the_centralized_model(hops: int, layers: int) -> None:
    graph = all_tested(example_graph(nodes=90, clients=4))
    problem, inputs = FedGCN(hops=hops, layers=layers).pretrain(graph, PlainChannel(), CPU)
    layout = gcn_layout(graph.num_features, 16, graph.num_classes, layers)
    weights = unflatten(glorot(layout, derive(1)).unsqueeze(0), layout)
    field = problem.fields(inputs, layers)[1]
    shared = {name: weight.expand(4, -1, -1) for name, weight in weights.items()}
    federated = logits(field, shared)[field.mask]
    centralized = graph.x.double()
    for index, weight in enumerate(weights.values()):
        centralized = adjacency(graph) @ ((centralized.relu() if index else centralized) @ weight[0].double())
    assert torch.allclose(federated.double(), centralized[torch.cat(graph.clients)], atol=1e-5)


def test_too_few_hops_do_not() -> None:
    graph = all_tested(example_graph())
    problem, inputs = FedGCN(hops=2, layers=3).pretrain(graph, PlainChannel(), CPU)
    layout = gcn_layout(graph.num_features, 16, graph.num_classes, 3)
    weights = {n: w.expand(3, -1, -1) for n, w in unflatten(glorot(layout, derive(1)).unsqueeze(0), layout).items()}
    field = problem.fields(inputs, 3)[1]
    centralized = graph.x.double()
    for index, weight in enumerate(weights.values()):
        centralized = adjacency(graph) @ ((centralized.relu() if index else centralized) @ weight[0].double())
    assert not torch.allclose(
        logits(field, weights)[field.mask].double(), centralized[torch.cat(graph.clients)], atol=1e-3
    )


@pytest.mark.parametrize("hops", [0, 1])
def test_few_hops_propagate_among_own_nodes_only(hops: int) -> None:
    """0 hops: an ordinary GCN on the own subgraph. 1 hop: the first layer is exact, the second sees own neighbours
    only."""
    graph = all_tested(example_graph())
    problem, inputs = FedGCN(hops=hops).pretrain(graph, PlainChannel(), CPU)
    layout = gcn_layout(graph.num_features, 16, graph.num_classes, 2)
    weights = {n: w.expand(3, -1, -1) for n, w in unflatten(glorot(layout, derive(1)).unsqueeze(0), layout).items()}
    first, second = (weight[0].double() for weight in weights.values())
    field = problem.fields(inputs, 2)[1]
    got = logits(field, weights)
    whole_graph, plain = adjacency(graph), adjacency(graph, counts=True)
    for k, nodes in enumerate(graph.clients):
        own = plain[nodes][:, nodes]
        degree = own.sum(1)
        inner = own / (degree[:, None] * degree[None, :]).sqrt() if hops == 0 else whole_graph[nodes][:, nodes]
        sums = inner @ graph.x[nodes].double() if hops == 0 else (whole_graph @ graph.x.double())[nodes]
        assert torch.allclose(got[k][field.mask[k]].double(), inner @ ((sums @ first).relu() @ second), atol=1e-5)


def all_tested(graph: FederatedGraph) -> FederatedGraph:
    return dataclasses.replace(graph, test=tuple(torch.ones_like(mask) for mask in graph.test))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_equals_a_plain_loop_over_clients(optimizer: Optimizer) -> None:
    graph = example_graph()
    protocol = FedGCN(hops=2, rounds=3, dropout=0.0, optimizer=optimizer, learning_rate=0.05, weighting="train-nodes")
    trained = protocol.train(graph, PlainChannel(), rng=derive(5), device=CPU)

    layout = gcn_layout(graph.num_features, 16, graph.num_classes, 2)
    model = [w[0] for w in unflatten(glorot(layout, split(derive(5), "weights")).unsqueeze(0), layout).values()]
    a, x = adjacency(graph).float(), graph.x
    shares = torch.tensor([float(mask.sum()) for mask in graph.train])
    shares /= shares.sum()
    for _ in range(3):
        uploads = []
        for nodes, mask in zip(graph.clients, graph.train, strict=True):
            local = [w.clone().requires_grad_() for w in model]
            kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
            step = kind(local, lr=0.05, weight_decay=5e-4)
            for _ in range(3):
                step.zero_grad()
                output = a @ (functional.relu(a @ x @ local[0]) @ local[1])
                functional.cross_entropy(output[nodes[mask]], graph.y[nodes[mask]]).backward()  # type: ignore[no-untyped-call]
                step.step()
            uploads.append([w.detach() for w in local])
        model = [sum((s * u[i] for s, u in zip(shares, uploads, strict=True)), torch.zeros(())) for i in range(2)]
    for got, expected in zip(trained.weights.values(), model, strict=True):
        assert torch.allclose(got, expected, atol=1e-5)
    predicted = (a @ (functional.relu(a @ x @ model[0]) @ model[1])).argmax(1)
    for k, (nodes, mask) in enumerate(zip(graph.clients, graph.test, strict=True)):
        right = (predicted == graph.y)[nodes[mask]].double().mean()
        assert trained.accuracy[-1, k] == right


def test_one_client_is_the_centralized_gcn() -> None:
    split_graph = example_graph()
    masks = [torch.zeros(split_graph.num_nodes, dtype=torch.bool) for _ in range(3)]
    for mask, parts in zip(masks, (split_graph.train, split_graph.val, split_graph.test), strict=True):
        for nodes, part in zip(split_graph.clients, parts, strict=True):
            mask[nodes] = part
    one = whole(Graph(split_graph.x, split_graph.y, split_graph.edge_index, "one"), *masks)
    federated = FedGCN(rounds=5).train(one, PlainChannel(), rng=derive(2), device=CPU)
    pooled = GCN(rounds=5, local_steps=3).train(split_graph, PlainChannel(), rng=derive(2), device=CPU)
    alone = LocalGCN(rounds=5).train(one, PlainChannel(), rng=derive(2), device=CPU)
    for name, weight in federated.weights.items():
        assert torch.allclose(weight, pooled.weights[name], atol=1e-5)
        assert torch.allclose(weight, alone.weights[name][0], atol=1e-5)
    assert torch.allclose(federated.accuracy_global, pooled.accuracy_global)


@pytest.mark.parametrize(
    "protocol",
    [
        FedGCN(hops=0, rounds=3),
        FedGCN(hops=1, rounds=3),
        FedGCN(hops=2, rounds=3, aggregate="counts", participation=0.5),
        FedGCN(hops=3, layers=3, rounds=3, optimizer="adam", learning_rate=0.01, weighting="train-nodes"),
        GCN(rounds=3),
        LocalGCN(rounds=3),
    ],
)
def test_conformance(protocol: FedGCN | GCN | LocalGCN) -> None:
    check_protocol(protocol)


def test_sampled_clients_upload_and_all_receive() -> None:
    graph = example_graph(clients=5)
    channel = PlainChannel()
    FedGCN(hops=0, rounds=6, participation=0.4).train(graph, channel, rng=derive(0), device=CPU)
    uploads = [batch for batch in channel.sent if bool((batch.receivers == SERVER).all())]
    assert [len(batch.senders) for batch in uploads] == [2] * 6
    assert len({tuple(batch.senders.tolist()) for batch in uploads}) > 1
    downloads = [batch for batch in channel.sent if bool((batch.senders == SERVER).all())]
    assert [batch.round for batch in downloads] == list(range(7))
    assert all(batch.receivers.tolist() == [0, 1, 2, 3, 4] for batch in downloads)
    assert channel.rounds == [1, 2, 3, 4, 5, 6]


def test_clients_without_training_or_test_nodes() -> None:
    graph = example_graph()
    nothing = torch.zeros_like(graph.train[1])
    graph = dataclasses.replace(
        graph, train=(graph.train[0], nothing, graph.train[2]), test=(graph.test[0], nothing, graph.test[2])
    )
    channel = PlainChannel()
    trained = FedGCN(rounds=2).train(graph, channel, rng=derive(0), device=CPU)
    uploads = [b for b in channel.sent if isinstance(b.payload, ModelUpdate) and bool((b.receivers == SERVER).all())]
    assert all(batch.senders.tolist() == [0, 2] for batch in uploads)
    assert trained.accuracy[:, 1].isnan().all() and math.isfinite(trained.client_mean)
    tests = torch.tensor([float(graph.test[0].sum()), float(graph.test[2].sum())])
    expected = (trained.accuracy[-1, [0, 2]] * tests).sum() / tests.sum()
    assert trained.whole_test_set == pytest.approx(float(expected))
    none = dataclasses.replace(
        graph, train=(torch.zeros_like(graph.train[0]), nothing, torch.zeros_like(graph.train[2]))
    )
    with pytest.raises(FglauditError, match="needs training nodes"):
        FedGCN(rounds=1).train(none, PlainChannel(), rng=derive(0), device=CPU)


def test_node_numbers_do_not_matter() -> None:
    graph = example_graph()
    order = torch.randperm(graph.num_nodes, generator=derive(9))
    number = torch.argsort(order)  # node order[i] becomes i
    masks = []
    for parts in (graph.train, graph.val, graph.test):
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for nodes, part in zip(graph.clients, parts, strict=True):
            mask[nodes] = part
        masks.append(mask[order])
    renamed = Graph(
        graph.x[order], graph.y[order], canonical_edges(number[graph.edge_index], graph.num_nodes), "renamed"
    )
    moved = federate(renamed, [number[nodes] for nodes in graph.clients], *masks)
    one = FedGCN(rounds=4, dropout=0.0).train(graph, PlainChannel(), rng=derive(0), device=CPU)
    other = FedGCN(rounds=4, dropout=0.0).train(moved, PlainChannel(), rng=derive(0), device=CPU)
    for name, weight in one.weights.items():
        assert torch.allclose(weight, other.weights[name], atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hops": -1}, "hops >= 0"),
        ({"layers": 0}, "layers >= 1"),
        ({"rounds": 0}, "rounds >= 1; got 0"),
        ({"aggregate": "normalized"}, "did you mean 'normalised'"),
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
        ({"weighting": "nodes"}, "unknown weighting 'nodes'"),
        ({"participation": 0.0}, "got 0; use 1"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"learning_rate": -0.1}, "learning_rate >= 0; got -0.1"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        FedGCN(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [FedGCN(rounds=1), GCN(rounds=1), LocalGCN(rounds=1)])
def test_graphs_that_do_not_fit_are_refused(protocol: FedGCN | GCN | LocalGCN) -> None:
    graph = example_graph()
    several = dataclasses.replace(graph, x=graph.x.unsqueeze(1).expand(-1, 4, -1))
    with pytest.raises(FglauditError, match=r"one feature row per node"):
        protocol.train(several, PlainChannel(), rng=derive(0), device=CPU)
    both = torch.cat([graph.clients[0], graph.clients[1][:1]]).sort().values
    masks = tuple(torch.cat([graph.train[0], graph.train[0][:1]]) for _ in range(3))
    overlapping = dataclasses.replace(
        graph,
        clients=(both, *graph.clients[1:]),
        train=(masks[0], *graph.train[1:]),
        val=(masks[1], *graph.val[1:]),
        test=(masks[2], *graph.test[1:]),
    )
    with pytest.raises(FglauditError, match="needs disjoint clients"):
        protocol.train(overlapping, PlainChannel(), rng=derive(0), device=CPU)
