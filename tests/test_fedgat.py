"""FedGAT against brute force on four nodes, dense graph attention, and itself on the other training path."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.channel import RecordingChannel
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import DefenseSession, Trained
from fglaudit.nn.chebyshev import Series, attention_function, attention_series
from fglaudit.nn.gat import GatShape, initial_model, layer_weights, project
from fglaudit.nn.gat_plan import unit_ball
from fglaudit.nn.gat_training import run_layers
from fglaudit.nn.masked_layer import Batch, factored
from fglaudit.nn.masking import careful_bytes, mask_nodes, node_bytes
from fglaudit.nn.neighborhood import KeptEdges
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload
from fglaudit.protocols.dist_gat import DistGAT
from fglaudit.protocols.fedgat import FedGAT
from fglaudit.protocols.gat import GAT
from fglaudit.rng import derive, split
from fglaudit.testing import check_protocol, example_graph, record
from fglaudit.transcript import Transcript
from fglaudit.view import Observer

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "heads": 2,
    "hidden": 3,
    "rounds": 3,
    "optimizer": "adam",
    "learning_rate": 0.02,
    "dropout": 0.0,
    "feature_dropout": 0.0,
    "bounds": "all",
}
VARIANTS = [MaskedMatrices, MaskedVectors]


def mixed_graph(dtype: torch.dtype = torch.float64, clients: int = 3) -> FederatedGraph:
    """The example graph with random splits, so that every class is trained and tested."""
    graph = example_graph(clients=clients)
    draw = torch.rand(graph.num_nodes, generator=derive(3, "splits"))
    masks = [
        tuple((draw[ids] >= low) & (draw[ids] < high) for ids in graph.clients)
        for low, high in ((0, 0.5), (0.5, 0.6), (0.6, 1))
    ]
    return dataclasses.replace(graph, x=graph.x.to(dtype), train=masks[0], val=masks[1], test=masks[2])


def four_nodes() -> tuple[KeptEdges, Tensor]:
    """0 - 1, 0 - 2, 1 - 2; node 3 has no neighbour, rows 1 and 2 are equal, row 0 is zero."""
    edges = canonical_edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 4)
    x = torch.tensor([[0, 0, 0], [0.5, 0, -0.5], [0.5, 0, -0.5], [0, 0.8, 0.1]], dtype=torch.float64)
    every = torch.ones(4, dtype=torch.bool)
    graph = federate(Graph(x, torch.tensor([0, 1, 0, 1]), edges, "four"), [torch.arange(4)], every, every, every)
    return KeptEdges.of([graph.client(0)], graph.degrees()), x


def quiet(graph: FederatedGraph) -> RecordingChannel:
    return RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))


def recording(graph: FederatedGraph) -> RecordingChannel:
    return RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"), Transcript())


def train(protocol: FedGAT | GAT | DistGAT, graph: FederatedGraph, channel: RecordingChannel | None = None) -> Trained:
    return protocol.train(graph, channel or quiet(graph), rng=derive(0, "train"), device=CPU)


@pytest.mark.parametrize("degree", [8, 16, 32])
@pytest.mark.parametrize("domain", [1.0, 2.0])
def test_series_error_falls_like_the_inverse_degree(degree: int, domain: float) -> None:
    x = torch.linspace(-domain, domain, 20001, dtype=torch.float64)
    error = (attention_series(degree, domain)(x) - attention_function(x)).abs().max()
    # The jump of the derivative at 0 is 1 - 0.2; the series of |t| errs by 2 / (pi p) at its kink.
    leading = 0.8 / 2 * domain * 2 / (math.pi * degree)
    assert 0.5 * leading < error < 1.5 * leading


def test_series_of_a_polynomial_is_exact_on_numbers_and_matrices() -> None:
    series = Series.of(lambda x: 2 * x**3 - x + 0.5, 5, 1.5)
    x = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64)
    torch.testing.assert_close(series(x), 2 * x**3 - x + 0.5)
    assert series.at_zero == pytest.approx(0.5)
    matrix = torch.randn(3, 4, 4, generator=derive(0, "m"), dtype=torch.float64)
    row = torch.randn(3, 4, generator=derive(0, "r"), dtype=torch.float64)
    value = 2 * matrix @ matrix @ matrix - matrix + 0.5 * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(series.row_times(row, matrix), (row.unsqueeze(1) @ value).squeeze(1))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("power", range(6))
def test_moments_against_brute_force(variant: type[MaskedMatrices | MaskedVectors], power: int) -> None:
    """``E^(n) = sum_j x_ij^n h_j`` and ``F^(n) = sum_j x_ij^n``, equation (8), over the closed neighbourhood."""
    edges, x = four_nodes()
    own, neighbor = torch.randn(2, 1, 2, 3, generator=derive(1, "b"), dtype=torch.float64)
    series = Series.of(lambda t: t**power, max(power, 1), 2.0)
    for node in range(4):
        nodes = torch.tensor([node])
        members = edges.source[edges.start[node] : edges.start[node + 1]].long()
        assert node in members
        payload = mask_nodes(edges, x, nodes, len(members), variant, derive(node, "masks"))
        batch = Batch.received(payload, torch.zeros_like(nodes), derive(0, "probes"))
        vectors, numbers = batch.moments(own, neighbor, series)
        scores = (own[0] @ x[node]).unsqueeze(1) + neighbor[0] @ x[members].T  # [heads, b]
        scale = 1 if variant is MaskedMatrices else 2  # |u_j|^2, which cancels in the attention
        torch.testing.assert_close(numbers[0], scale * (scores**power).sum(1))
        torch.testing.assert_close(vectors[0], scale * scores**power @ x[members])
        found = batch.edge_scores(own, neighbor).abs().sort().values
        torch.testing.assert_close(found, scores.flatten().abs().repeat(2).sort().values, atol=1e-7, rtol=0)


def test_matrices_have_the_printed_structure() -> None:
    edges, x = four_nodes()
    payload = mask_nodes(edges, x, torch.tensor([0, 1, 2]), 3, MaskedMatrices, derive(0, "masks"))
    assert isinstance(payload, MaskedMatrices)
    total = payload.m1[1, 0] / x[1, 0]  # sum_j U_j, a projection of rank b
    torch.testing.assert_close(total @ total, total)
    assert torch.linalg.matrix_rank(total) == 3
    torch.testing.assert_close((payload.k1**2).sum(1), torch.full((3,), 6.0, dtype=torch.float64))  # K1'K1 = 2b, not b
    sums = torch.einsum("pw,pswv,pv->ps", payload.k1, payload.m2, payload.k1)
    torch.testing.assert_close(sums, x[:3].sum(0).expand(3, 3))  # K1' M2(s) K1 = sum_j h_j(s)


def test_vectors_satisfy_the_constraints_on_masks() -> None:
    edges, x = four_nodes()
    payload = mask_nodes(edges, x, torch.tensor([0, 1, 2]), 3, MaskedVectors, derive(0, "masks"))
    assert isinstance(payload, MaskedVectors)
    projection = payload.k2
    torch.testing.assert_close(projection @ projection, projection)
    shown = payload.m2.transpose(1, 2) @ projection  # sum_j h_j u_j'
    assert not torch.allclose(payload.m2.transpose(1, 2), shown)
    for p, node in enumerate((0, 1, 2)):
        members = edges.source[edges.start[node] : edges.start[node + 1]].long()
        columns = {tuple(round(v, 6) + 0.0 for v in column) for column in shown[p].T.tolist()}
        assert columns == {tuple(row) for row in x[members].tolist()}


@pytest.mark.parametrize("variant", ["matrix", "vector"])
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_both_paths_give_the_same_loss_and_gradients(variant: str, remote: str, layers: int) -> None:
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
@pytest.mark.parametrize("remote", ["matrices", "embeddings"])
def test_the_matrix_path_alone_reproduces_a_run(variant: str, remote: str) -> None:
    graph = mixed_graph(torch.float32)
    protocol = FedGAT(variant=variant, remote=remote, **SMALL | {"rounds": 10, "optimizer": "sgd", "learning_rate": 1.0})
    heard, silent = recording(graph), quiet(graph)
    full, fast = train(protocol, graph, heard), train(protocol, graph, silent)
    assert any(entry.payload == protocol.masked.__name__ for entry in heard.transcript.entries)  # type: ignore[union-attr]
    assert torch.equal(full.accuracy_global, fast.accuracy_global)
    for name, weight in full.weights.items():
        torch.testing.assert_close(weight, fast.weights[name], atol=2e-5, rtol=1e-4)
    assert torch.equal(heard.bytes_down, silent.bytes_down) and torch.equal(heard.bytes_up, silent.bytes_up)


DROPOUT = {"dropout": 0.3, "feature_dropout": 0.2}
PROTOCOLS = [
    FedGAT(remote="matrices", **SMALL),
    FedGAT(variant="vector", remote="matrices", **SMALL),
    FedGAT(**SMALL),
    FedGAT(variant="vector", local_steps=2, proximal=0.1, participation=0.7, **SMALL | DROPOUT),
    GAT(**SMALL),
    DistGAT(**SMALL),
]


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


def test_nodes_without_neighbours_equal_rows_zero_rows_and_empty_clients() -> None:
    edges = canonical_edges(torch.tensor([[0, 0, 1, 0], [1, 2, 2, 1]]), 6)
    x = torch.tensor([[0, 0, 0], [1, 0, 1], [1, 0, 1], [0, 1.0, 0], [1, 1, 0], [0, 0, 0]])
    every = torch.ones(6, dtype=torch.bool)
    clients = [torch.tensor([0, 3]), torch.tensor([1, 2, 4, 5]), torch.empty(0, dtype=torch.long)]
    graph = federate(Graph(x, torch.tensor([0, 1, 0, 1, 1, 0]), edges, "hard"), clients, every, every, every)
    for protocol in PROTOCOLS:
        for channel in (quiet(graph), recording(graph)):
            trained = protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)
            assert all(bool(torch.isfinite(w).all()) for w in trained.weights.values())
            assert trained.accuracy[:, 2].isnan().all() and not trained.accuracy_global.isnan().any()


def test_scores_outside_the_domain_are_announced() -> None:
    graph = mixed_graph()
    for path in ("moments", "matrices"):
        protocol = FedGAT(domain=0.05, path=path, **SMALL)
        with pytest.warns(UserWarning, match="of the edge scores left the series' domain"):
            trained = train(protocol, graph)
        assert len(trained.notes) == 1 and "raise domain" in trained.notes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(FedGAT(**SMALL), graph).notes == ()
        assert train(FedGAT(domain=50.0, **SMALL | {"bounds": "none"}), graph).notes == ()


def test_both_paths_measure_the_same_share_outside() -> None:
    graph, shares = mixed_graph(), []
    for path in ("moments", "matrices"):
        for variant in ("matrix", "vector"):
            protocol = FedGAT(domain=0.3, path=path, variant=variant, **SMALL)
            training, initial, _ = protocol.prepare(graph, quiet(graph), derive(0, "train"), CPU)
            assert training.outside is not None
            weights = unflatten(initial.expand(graph.num_clients, -1), training.layout)
            shares.append(float(training.outside(layer_weights(weights)[0])))
    assert 0.02 < shares[0] < 0.98
    assert shares == pytest.approx([shares[0]] * 4, abs=1e-6)


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


def test_the_fast_path_is_refused_where_the_matrices_are_recorded() -> None:
    graph = mixed_graph()
    with pytest.raises(FglauditError, match="use path 'auto'"):
        train(FedGAT(path="moments", **SMALL), graph, recording(graph))


def test_factors_are_used_only_where_they_lose_nothing() -> None:
    rng = derive(0, "factors")
    low = torch.randn(4, 20, 3, generator=rng) @ torch.randn(4, 3, 36, generator=rng)
    left, right = factored(low, 3, rng)
    torch.testing.assert_close(left @ right, low, atol=1e-4, rtol=1e-5)
    noisy = low + 0.01 * torch.randn(low.shape, generator=rng)
    assert len(factored(noisy, 3, rng)) == 1 and factored(noisy, 3, rng)[0] is noisy
    assert len(factored(low + 0.1, 3, rng)) == 1  # a constant on top is one rank too many
    (zeros, _) = factored(torch.zeros(2, 20, 36), 3, rng)
    assert torch.isfinite(zeros).all()


def test_messages_of_one_node_are_the_same_for_all_receivers() -> None:
    graph = mixed_graph(torch.float32)
    sent = []

    def keep(batch: MessageBatch, payload: Payload) -> Payload:
        sent.append(batch)
        return payload

    record(FedGAT(remote="matrices", **SMALL | {"rounds": 1}), graph, tamper=keep)
    copies: dict[int, Tensor] = {}
    receivers: dict[int, set[int]] = {}
    for batch in sent:
        if isinstance(batch.payload, MaskedMatrices):
            assert bool((batch.senders == SERVER).all())
            for p, node in enumerate(batch.payload.node.tolist()):
                assert torch.equal(copies.setdefault(node, batch.payload.m2[p]), batch.payload.m2[p])
                receivers.setdefault(node, set()).add(int(batch.receivers[p]))
    owner = graph.owner()
    for node, found in receivers.items():
        neighbors = graph.edge_index[1][graph.edge_index[0] == node]
        assert found == {int(owner[node]), *owner[neighbors].tolist()}
    assert len(receivers) == graph.num_nodes


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


def test_bytes_by_hand() -> None:
    edges, x = four_nodes()
    # b = 3, width 6, 3 features: M1 and M2 216 numbers, K1 6, K2 18; vectors M1, M2, K1 54, mask4 36, K3 6.
    assert node_bytes(3, 3, MaskedMatrices) == 8 + 4 * (216 + 6 + 18)
    assert node_bytes(3, 3, MaskedVectors) == 8 + 4 * (54 + 36 + 6)
    # Two features occur around nodes 0 ... 2: sum U and two slices of 36, K1 6, two columns of K2, two indices.
    assert careful_bytes(edges, x, torch.tensor([0]), MaskedMatrices) == 8 + 2 * 4 + 4 * (3 * 36 + 6 + 12)
    assert careful_bytes(edges, x, torch.tensor([0]), MaskedVectors) == 8 + 4 * (36 + 36 + 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 0}, "degree >= 1; got 0"),
        ({"domain": 0.0}, "finite R > 0; got 0"),
        ({"domain": math.inf}, "finite R > 0"),
        ({"heads": 0}, "heads >= 1; got 0"),
        ({"variant": "matrx"}, "matrix"),
        ({"remote": "none"}, "embeddings"),
        ({"path": "fast"}, "moments"),
        ({"bounds": "some"}, "first-layer"),
        ({"choice": "best"}, "validation"),
        ({"proximal": -1.0}, "must not be negative"),
    ],
)
def test_bad_hyperparameters(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        FedGAT(**arguments)  # type: ignore[arg-type]


def test_features_must_be_finite() -> None:
    graph = mixed_graph()
    x = graph.x.clone()
    x[7, 2] = math.nan
    with pytest.raises(FglauditError, match="finite features; row 7"):
        train(FedGAT(**SMALL), dataclasses.replace(graph, x=x))


def test_validation_chooses_the_round() -> None:
    graph = mixed_graph()
    trained = train(FedGAT(choice="validation", **SMALL | {"rounds": 12, "learning_rate": 0.1}), graph)
    assert 0 <= trained.round < 12
    assert trained.whole_test_set == float(trained.accuracy_global[trained.round])
