"""FedGCN against hand-computed messages, a dense centralized GCN, and a plain per-client federated loop."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, Graph, canonical_edges, federate, whole
from fglaudit.nn import sums as sums_module
from fglaudit.nn.gcn import logits
from fglaudit.nn.weights import gcn_layout, glorot, unflatten
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.protocols.fedgcn import FedGCN
from fglaudit.protocols.gcn import GCN
from fglaudit.protocols.local import LocalGCN
from fglaudit.rng import derive, split
from fglaudit.testing import check_protocol, example_graph
from fglaudit.view import Observer

CPU = torch.device("cpu")


class PlainChannel:
    """Delivers what is sent and keeps a list of it; ``dropped`` lists directed cross edges (i, j) that i's owner drops."""

    def __init__(self, dropped: tuple[tuple[int, int], ...] = ()) -> None:
        self.dropped = dropped
        self.sent: list[MessageBatch] = []
        self.rounds: list[int] = []

    def prepare(self, client: ClientGraph) -> ClientGraph:
        pairs = zip(client.nodes[client.boundary[0]].tolist(), client.remote_nodes[client.boundary[1]].tolist(), strict=True)
        keep = torch.tensor([pair not in self.dropped for pair in pairs], dtype=torch.bool)
        return dataclasses.replace(client, boundary=client.boundary[:, keep])

    def send(self, batch: MessageBatch) -> Payload:
        self.sent.append(batch)
        return batch.payload

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return True

    def round_done(self, round: int, rounds: int) -> None:
        self.rounds.append(round)

    def sums(self, *, up: bool) -> dict[tuple[int, int], Tensor]:
        """Rows by (client, node), of all batches of one direction."""
        rows = {}
        for batch in self.sent:
            if isinstance(batch.payload, NeighborSums) and bool((batch.receivers == SERVER).all()) == up:
                parties = (batch.senders if up else batch.receivers)[batch.entry_messages()]
                for client, node, row in zip(parties.tolist(), batch.payload.nodes.tolist(), batch.payload.sums, strict=True):
                    assert (client, node) not in rows
                    rows[client, node] = row
        return rows


def path_graph() -> FederatedGraph:
    """0 - 1 - 2 - 3 with clients {0, 1} and {2, 3}; features are the identity, so a sum shows its own weights."""
    edges = canonical_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    every = torch.ones(4, dtype=torch.bool)
    graph = Graph(torch.eye(4), torch.tensor([0, 0, 1, 1]), edges, "path")
    return federate(graph, [torch.tensor([0, 1]), torch.tensor([2, 3])], every, every, every)


def adjacency(graph: FederatedGraph, *, counts: bool = False) -> Tensor:
    """Dense float64 adjacency with self-loops [N, N], normalised unless ``counts``."""
    dense = torch.eye(graph.num_nodes, dtype=torch.float64)
    dense[graph.edge_index[0], graph.edge_index[1]] = 1
    degree = dense.sum(1)
    return dense if counts else dense / (degree[:, None] * degree[None, :]).sqrt()


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
    assert not torch.allclose(logits(field, weights)[field.mask].double(), centralized[torch.cat(graph.clients)], atol=1e-3)


@pytest.mark.parametrize("hops", [0, 1])
def test_few_hops_propagate_among_own_nodes_only(hops: int) -> None:
    """0 hops: an ordinary GCN on the own subgraph. 1 hop: the first layer is exact, the second sees own neighbours only."""
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
def test_training_equals_a_plain_loop_over_clients(optimizer: str) -> None:
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
def test_sums_of_very_large_graphs_are_accumulated_in_float32(monkeypatch: pytest.MonkeyPatch, aggregate: str) -> None:
    graph = example_graph()
    precise, fast = PlainChannel(), PlainChannel()
    FedGCN(aggregate=aggregate).pretrain(graph, precise, CPU)
    monkeypatch.setattr(sums_module, "PRECISE_WORK", 0)
    FedGCN(aggregate=aggregate).pretrain(graph, fast, CPU)
    rows = fast.sums(up=True)
    for key, row in precise.sums(up=True).items():
        assert torch.equal(rows[key], row) if aggregate == "counts" else torch.allclose(rows[key], row, rtol=1e-6, atol=0)


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
    none = dataclasses.replace(graph, train=(torch.zeros_like(graph.train[0]), nothing, torch.zeros_like(graph.train[2])))
    with pytest.raises(FglauditError, match="needs training nodes"):
        FedGCN(rounds=1).train(none, PlainChannel(), rng=derive(0), device=CPU)


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
            return dataclasses.replace(client, boundary=client.boundary[:, :0], degrees=torch.zeros_like(client.degrees))

    channel = Hiding()
    FedGCN().pretrain(graph, channel, CPU)
    hub = torch.stack([row[0] for row in channel.sums(up=True).values()]).norm()
    (release,) = FedGCN().releases(graph)
    assert release.gain is not None and 0.5 < float(hub) <= release.gain


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
    renamed = Graph(graph.x[order], graph.y[order], canonical_edges(number[graph.edge_index], graph.num_nodes), "renamed")
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
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"aggregate": "normalized"}, "did you mean 'normalised'"),
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
        ({"weighting": "nodes"}, "unknown weighting 'nodes'"),
        ({"participation": 0.0}, "got 0; use 1"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"learning_rate": -0.1}, "learning_rate must not be negative"),
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
