"""FedGT against a plain loop over clients and the server's formulas by brute force; bad input."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.defenses.noise.clipped_laplace import ClippedLaplace
from fglaudit.errors import FglauditError
from fglaudit.graph import FeatureKind, FederatedGraph, Graph, canonical_edges, federate
from fglaudit.nn.graph_transformer import Dropout
from fglaudit.nn.online_clustering import update_centroids
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, GlobalNodes, LabelDistributions, ModelUpdate, Payload
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgt.alignment import without_noise
from fglaudit.protocols.fedgt.fedgt import FedGT, Similarity
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates
from fglaudit.protocols.fedgt.receptive_field import draw_field
from fglaudit.protocols.fedgt.sampled_neighbors import SampledNeighbors
from fglaudit.rng import derive
from fglaudit.testing import Run, check_protocol, example_graph, record

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"hidden": 8, "heads": 2, "feed_forward": 8, "global_nodes": 3, "neighbors": 4, "candidates": 8}


def small_graph(**changes: Any) -> FederatedGraph:
    """60 nodes at 3 clients, 2 classes that appear in every split."""
    return example_graph(**({"classes": 2} | changes))


@pytest.mark.parametrize("similarity", get_args(Similarity))
def test_conformance(similarity: Similarity) -> None:
    check_protocol(FedGT(rounds=2, tested="received", similarity=similarity, **SMALL), small_graph())


def test_conformance_with_the_clients_own_models() -> None:
    check_protocol(FedGT(rounds=5, learning_rate=5e-3, **SMALL), small_graph(nodes=120))


def test_conformance_of_the_local_form() -> None:
    check_protocol(LocalGT(rounds=2, **SMALL), small_graph())


def test_conformance_of_the_graphsage_baseline() -> None:
    check_protocol(FedAvgSage(rounds=2, hidden=8), small_graph())
    with pytest.raises(FglauditError, match="candidates >= 40"):
        FedAvgSage(neighbors=40)


def test_local_training_equals_a_plain_loop_over_clients() -> None:
    """Without dropout and with one candidate per node nothing is random but the order inside the one mini-batch."""
    graph = small_graph(nodes=75)
    protocol = FedGT(rounds=2, dropout=0.0, local_epochs=2, **SMALL)
    channel = record(protocol, graph).channel
    models, first, centers = protocol.prepare(graph, channel, derive(0, "train"), CPU)
    pool = Candidates(torch.randint(25, (3, 25, 1), generator=derive(1)), torch.ones(3, 25, 1))
    models.surroundings = SampledNeighbors(protocol.network(), pool, models.inputs.present, 4, 8)
    models.load(first.expand(3, -1), centers.expand(3, -1, -1))
    models.train_round()
    for k in range(3):
        inputs, vector = models.inputs, first.clone().unsqueeze(0).requires_grad_()
        optimizer = torch.optim.Adam([vector], lr=1e-3, weight_decay=5e-4)
        mine, counts = centers.unsqueeze(0), torch.ones(1, 3)
        candidates = Candidates(pool.nodes[k : k + 1], torch.ones(1, 25, 1))
        chosen = inputs.train[k].nonzero().T
        for _ in range(2):
            weights = unflatten(vector, models.layout)
            x = torch.cat([graph.client(k).x, inputs.encoding[k]], 1)
            rows = x @ weights["input.weight"][0] + weights["input.bias"][0]
            field = draw_field(candidates, chosen, torch.ones_like(chosen, dtype=torch.bool), 2, 4, None)
            outputs = protocol.network().logits(weights, rows.unsqueeze(0), field.layers, mine, Dropout(0, None))
            optimizer.zero_grad()
            functional.cross_entropy(outputs[0], inputs.labels[k, chosen[0]]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            mine, counts = update_centroids(rows.detach().unsqueeze(0), field.reached, mine, counts, 0.9)
        found = unflatten(models.vectors[k : k + 1], models.layout)
        for name, weight in unflatten(vector.detach(), models.layout).items():
            # A softmax does not see the bias of its keys: that gradient is rounding noise, which Adam blows up.
            kept = slice(8, None) if name.endswith("key_value.bias") else slice(None)
            assert torch.allclose(found[name][:, kept], weight[:, kept], atol=1e-5), name
        assert torch.allclose(models.global_nodes[k], mine[0], atol=1e-5)


def messages(run: Run, kind: type[Payload], *, up: bool) -> list[Tensor]:
    """Payloads of one kind and direction, round by round."""
    batches = [run.transcript.read(i) for i in range(len(run.transcript.entries))]
    chosen = [b for b in batches if isinstance(b.payload, kind) and bool((b.receivers == SERVER).all()) == up]
    return [next(iter(b.payload.tensors().values())) for b in chosen]


@pytest.mark.parametrize("similarity", get_args(Similarity))
def test_the_server_follows_equations_7_and_8(similarity: Similarity) -> None:
    graph = small_graph()
    run = record(FedGT(rounds=3, similarity=similarity, tau=3.0, **SMALL), graph)
    sent, returned = messages(run, ModelUpdate, up=False), messages(run, GlobalNodes, up=False)
    changes, centers = messages(run, ModelUpdate, up=True), messages(run, GlobalNodes, up=True)
    assert [len(part) for part in (sent, returned, changes, centers)] == [4, 4, 3, 3]
    assert bool((sent[0] == sent[0][0]).all()) and bool((returned[0] == returned[0][0]).all())
    train = torch.tensor([float(mask.sum()) for mask in graph.train])
    for round in range(3):
        models, nodes = sent[round] + changes[round], centers[round]
        unit = functional.normalize(nodes, dim=2)
        scores, orders = torch.zeros(3, 3), {}
        for i, j in itertools.product(range(3), repeat=2):
            permutations = list(itertools.permutations(range(3)))
            if similarity == "global-nodes-unaligned":
                permutations = permutations[:1]
            orders[i, j] = max(permutations, key=lambda p: float((unit[i] * unit[j, list(p)]).sum()))
            scores[i, j] = (unit[i] * unit[j, list(orders[i, j])]).sum() / 3
        if similarity == "local-updates":
            scores = torch.corrcoef(torch.cat([changes[round], -changes[round]], 1))  # centred, so a cosine
        elif similarity == "label-distributions":
            shares = messages(run, LabelDistributions, up=True)[0]
            assert torch.allclose(shares.sum(1), torch.ones(3))
            scores = functional.cosine_similarity(shares.unsqueeze(0), shares.unsqueeze(1), dim=2)
        weights = (3.0 * scores).exp()
        weights = (train.expand(3, -1) if similarity == "fedavg" else weights) / 1
        weights = weights / weights.sum(1, keepdim=True)
        assert torch.allclose(sent[round + 1], weights @ models, atol=1e-5)
        for i in range(3):
            expected = sum((weights[i, j] * nodes[j, list(orders[i, j])] for j in range(3)), torch.zeros(3, 8))
            assert torch.allclose(returned[round + 1][i], expected, atol=1e-5)


def test_own_weights_stand_in_the_record() -> None:
    run = record(FedGT(rounds=3, tau=3.0, **SMALL), small_graph())
    own = run.trained.series["own_weight"]
    assert own.shape == (3,) and bool((own > 1 / 3).all()) and bool((own < 1).all())
    assert run.recording.history["own_weight"] == own.tolist()


def test_noise_is_taken_off_similarities() -> None:
    """Cosines of noisy copies of vectors with a cosine of 0.6, and of what comes back without the noise."""
    first, second, rest = torch.linalg.qr(torch.randn(4000, 3, generator=derive(0), dtype=torch.double)).Q.T
    vectors = 60 * torch.stack([first, 0.6 * first + 0.8 * second, rest])
    noisy = vectors + torch.randn(vectors.shape, generator=derive(1), dtype=torch.double)
    unit = functional.normalize(noisy, dim=1)
    seen = unit @ unit.T
    assert float(seen[0, 1]) < 0.35
    restored = without_noise(seen, noisy, 1.0)
    assert float(restored[0, 1]) == pytest.approx(0.6, abs=0.08) and abs(float(restored[0, 2])) < 0.08
    assert restored.diagonal().tolist() == [1.0, 1.0, 1.0]


def test_noise_without_bias_makes_own_weights_smaller() -> None:
    graph, noise = small_graph(nodes=120), ClippedLaplace(clip=0.05, scale=0.02)
    plain, debiased = (
        record(FedGT(rounds=2, debiased=taken, **SMALL), graph, noise).trained.series["own_weight"]
        for taken in (False, True)
    )
    assert bool((debiased < plain).all())
    quiet = [record(FedGT(rounds=2, debiased=taken, **SMALL), graph).trained.weights for taken in (False, True)]
    assert all(torch.equal(quiet[0][name], quiet[1][name]) for name in quiet[0])


def test_label_distributions_are_those_of_the_training_nodes() -> None:
    graph = small_graph()
    shares = messages(
        record(FedGT(rounds=1, similarity="label-distributions", **SMALL), graph), LabelDistributions, up=True
    )[0]
    for k in range(3):
        labels = graph.y[graph.clients[k]][graph.train[k]]
        assert torch.allclose(shares[k], torch.bincount(labels, minlength=2) / len(labels))


def test_the_best_validation_round_counts() -> None:
    graph = small_graph()
    trained = record(FedGT(rounds=6, learning_rate=1e-2, **SMALL), graph).trained
    again = dataclasses.replace(graph, val=graph.test, test=graph.val)
    validation = record(FedGT(rounds=6, learning_rate=1e-2, **SMALL), again).trained.accuracy.mean(1)
    assert trained.round == int(validation.argmax())
    assert trained.truth["global_nodes"].shape == (3, 3, 8) and trained.truth["clusters"].shape[1:] == (3, 20)


def test_without_validation_nodes_the_last_round_counts() -> None:
    graph = small_graph()
    blind = dataclasses.replace(graph, val=tuple(torch.zeros_like(mask) for mask in graph.val))
    assert record(FedGT(rounds=3, **SMALL), blind).trained.round == 2


def test_it_learns() -> None:
    graph = small_graph(nodes=240, features=40)
    settings: dict[str, Any] = SMALL | {
        "hidden": 32,
        "feed_forward": 32,
        "dropout": 0.2,
        "rounds": 30,
        "learning_rate": 3e-3,
    }
    for protocol in (FedGT(**settings), LocalGT(**settings)):
        assert record(protocol, graph).trained.client_mean > 0.7


def test_overlapping_and_unequal_clients_and_isolated_nodes() -> None:
    """One client holds nearly everything, one has isolated nodes alone and no training node, and they share nodes."""
    edges = canonical_edges(torch.randint(40, (2, 90), generator=derive(0, "edges")), 50)
    x = (torch.rand(50, 12, generator=derive(0, "x")) < 0.3).float()
    mask = torch.arange(50) % 2 == 0
    graph = federate(
        Graph(x, torch.arange(50) % 3, edges, "odd"),
        [torch.arange(45), torch.tensor([3, 4, 5, 6]), torch.arange(41, 50, 2)],
        mask,
        ~mask,
        ~mask,
    )
    for sampling in ("ppr", "graphsage", "attribute"):
        trained = record(FedGT(rounds=2, batch_size=8, sampling=sampling, **SMALL), graph).trained
        assert all(bool(torch.isfinite(w).all()) for w in trained.weights.values())
        assert trained.accuracy.shape == (2, 3)


def test_dense_features_train_as_sparse_ones() -> None:
    """The first product runs over the non-zero features where they are few; the result is the same."""
    graph = small_graph(features=200)
    sparse = dataclasses.replace(graph, x=graph.x * (torch.rand(graph.x.shape, generator=derive(0)) < 0.1))
    protocol = FedGT(rounds=1, **SMALL)
    channel = record(protocol, sparse).channel
    models, first, _ = protocol.prepare(sparse, channel, derive(0), CPU)
    inputs = models.inputs
    assert inputs.sparse is not None and inputs.features is None
    weights = unflatten(first.expand(3, -1), models.layout)
    projected = inputs.project(weights["input.weight"], weights["input.bias"])
    for k in range(3):
        x = torch.cat([sparse.client(k).x, inputs.encoding[k]], 1)
        assert torch.allclose(projected[k], x @ weights["input.weight"][k] + weights["input.bias"][k], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"similarity": "cosine"}, "unknown similarity 'cosine'"),
        ({"sampling": "pagerank"}, "unknown sampling"),
        ({"tested": "global"}, "unknown tested"),
        ({"rounds": 0}, "rounds >= 1; got 0"),
        ({"global_nodes": 0}, "global_nodes >= 1"),
        ({"candidates": 8}, "candidates >= 16; got 8"),
        ({"encoding": -1}, "encoding >= 0"),
        ({"tau": float("inf")}, "'tau' must be .*finite"),
        ({"tau": -1.0}, "not negative"),
        ({"restart": 0.0}, r"lies in \(0, 1\]"),
        ({"momentum": 1.0}, "momentum is a share"),
        ({"global_scale": 0.0}, "global_scale must be positive"),
        ({"global_scale": float("nan")}, "'global_scale' must be .*finite"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"local_epochs": 0}, "epochs >= 1"),
        ({"learning_rate": -1.0}, "learning_rate >= 0; got -1"),
        ({"hidden": 10}, "multiple of heads"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FglauditError, match=message):
        FedGT(**arguments)


def test_more_global_nodes_than_nodes() -> None:
    graph = small_graph()
    with pytest.raises(FglauditError, match=r"client \d has 20 for 21; lower global_nodes"):
        FedGT(**(SMALL | {"global_nodes": 21})).check(graph)
    with pytest.raises(FglauditError, match="lower global_nodes"):
        LocalGT(**(SMALL | {"global_nodes": 21})).check(graph)


def test_more_encoding_dimensions_than_nodes() -> None:
    graph = small_graph(nodes=15)
    trained = record(FedGT(rounds=1, encoding=9, **SMALL), graph).trained
    assert trained.weights["input.weight"].shape == (3, 24 + 9, 8)


def test_weights_that_collapse_are_reported() -> None:
    with pytest.warns(UserWarning, match="nothing is learned from others; lower tau"):
        trained = record(FedGT(rounds=1, tau=1e5, **SMALL), small_graph()).trained
    assert len(trained.notes) == 1
    assert record(FedGT(rounds=1, **SMALL), small_graph()).trained.notes == ()


def test_a_codebook_that_starts_too_far_out_collapses_unless_it_is_noisy() -> None:
    graph = small_graph(nodes=120, features=60)
    settings: dict[str, Any] = SMALL | {"hidden": 64, "global_nodes": 8, "rounds": 3}
    far, near = (record(FedGT(global_scale=scale, **settings), graph).trained for scale in (1.0, 0.01))
    noisy = record(FedGT(**settings), graph, ClippedLaplace(clip=0.002, scale=0.001)).trained
    assert all(len(set(row.tolist())) == 1 for row in far.truth["clusters"][-1])
    assert far.notes == (
        (
            "fedgt: at every client one global node stands for all nodes, the other 7 for none; without noise on global"
            " nodes use global_scale: 0.01"
        ),
    )
    for trained in (near, noisy):
        assert min(len(set(row.tolist())) for row in trained.truth["clusters"][-1]) >= 3 and trained.notes == ()


def test_graphs_that_cannot_train() -> None:
    graph = small_graph()
    nobody = dataclasses.replace(graph, train=tuple(torch.zeros_like(mask) for mask in graph.train))
    with pytest.raises(FglauditError, match="needs training nodes"):
        FedGT(**SMALL).check(nobody)
    samples = dataclasses.replace(graph, x=graph.x.unsqueeze(1), features=FeatureKind.BINARY)
    with pytest.raises(FglauditError, match="one feature row per node"):
        FedGT(**SMALL).check(samples)


def test_diverging_training_is_an_error() -> None:
    with pytest.raises(FglauditError, match="must stay finite"):
        record(FedGT(rounds=3, learning_rate=1e38, **SMALL), small_graph())
