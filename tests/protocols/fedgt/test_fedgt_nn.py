"""FedGT's parts against closed forms, brute force and plain loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import canonical_edges
from fglaudit.nn import graph_transformer
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.nn.graph_transformer import Dropout, GraphTransformer, Neighborhood, hybrid_layer, initial_model
from fglaudit.nn.laplacian import laplacian_encoding
from fglaudit.nn.matched_nodes import align, average_global_nodes
from fglaudit.nn.online_clustering import nearest, update_centroids
from fglaudit.nn.weights import unflatten
from fglaudit.protocols.baselines.sage import Sage
from fglaudit.protocols.fedgt.alignment import personal_weights
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates, find_candidates
from fglaudit.protocols.fedgt.ppr import exact_pagerank, largest_scores, pushed_pagerank
from fglaudit.protocols.fedgt.receptive_field import draw_field, trim
from fglaudit.rng import derive
from fglaudit.testing import example_graph

NONE = Dropout(0, None)


def random_edges(nodes: int, edges: int, seed: int = 0) -> Tensor:
    """Edges among all nodes but the last, which has none."""
    return canonical_edges(torch.randint(nodes - 1, (2, edges), generator=derive(seed, "edges")), nodes)


def test_pagerank_is_the_sum_over_walks() -> None:
    edges, nodes, restart = random_edges(12, 20), 12, 0.15
    scores = exact_pagerank(edges, nodes, restart)
    walk = torch.zeros(nodes, nodes, dtype=torch.float64)
    walk[edges[0], edges[1]] = 1
    walk = walk / walk.sum(1, keepdim=True).clamp(min=1)
    expected, step = torch.zeros_like(walk), torch.eye(nodes, dtype=torch.float64)
    for _ in range(300):
        expected += restart * step
        step = (1 - restart) * step @ walk
    assert torch.allclose(scores.double(), expected, atol=1e-6)
    assert scores[-1].tolist() == pytest.approx([*[0.0] * (nodes - 1), restart])


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4])
def test_pushed_pagerank_is_below_the_exact_one_by_at_most_epsilon_times_degree(epsilon: float) -> None:
    edges, nodes = random_edges(80, 200), 80
    pushed = torch.from_numpy(pushed_pagerank(edges, nodes, 0.15, epsilon).toarray())
    missing = exact_pagerank(edges, nodes, 0.15).double() - pushed
    degree = torch.bincount(edges[0], minlength=nodes).clamp(min=1)
    assert bool((missing >= -1e-6).all()) and bool((missing <= epsilon * degree + 1e-6).all())
    assert int((pushed > 0).sum(1).max()) <= 1 / (0.15 * epsilon)


def test_largest_scores_agree_on_both_paths() -> None:
    edges = random_edges(60, 150)
    nodes, scores = largest_scores(edges, 60, 0.15, 8)
    _, pushed = largest_scores(edges, 60, 0.15, 8, exact_up_to=1, epsilon=1e-7)
    assert torch.allclose(scores, pushed, atol=1e-4)
    assert torch.equal(scores, exact_pagerank(edges, 60, 0.15).gather(1, nodes))
    assert scores[-1].tolist() == pytest.approx([0.15, *[0.0] * 7])
    assert largest_scores(edges[:, :0], 3, 0.15, 8)[1].shape == (3, 8)
    for restart in (0.0, 1.5):
        with pytest.raises(FglauditError, match=r"lies in \(0, 1\]"):
            largest_scores(edges, 60, restart, 8)


@pytest.mark.parametrize("nodes", [40, 700])
def test_encoding_solves_the_eigenvalue_problem_of_a_cycle(nodes: int) -> None:
    """The normalised Laplacian of a cycle has eigenvalues ``1 - cos(2 pi k / n)``, each but the first twice."""
    ring = torch.arange(nodes)
    edges = canonical_edges(torch.stack([ring, (ring + 1) % nodes]), nodes)
    encoding = laplacian_encoding(edges, nodes, 4).double()
    applied = encoding - (encoding.roll(1, 0) + encoding.roll(-1, 0)) / 2
    values = torch.tensor([1 - math.cos(2 * math.pi * k / nodes) for k in (1, 1, 2, 2)], dtype=torch.float64)
    assert torch.allclose(applied, encoding * values, atol=1e-6)
    assert torch.allclose(encoding.T @ encoding, torch.eye(4, dtype=torch.float64), atol=1e-5)
    assert torch.equal(encoding, laplacian_encoding(edges, nodes, 4).double())


def test_encoding_of_graphs_that_are_too_small() -> None:
    edges = canonical_edges(torch.tensor([[0, 1], [1, 2]]), 3)
    encoding = laplacian_encoding(edges, 3, 8)
    assert encoding.shape == (3, 8) and bool((encoding[:, 2:] == 0).all())
    assert torch.equal(laplacian_encoding(edges[:, :0], 1, 8), torch.zeros(1, 8))


def test_online_clustering_is_algorithm_1() -> None:
    rng = derive(0, "clusters")
    rows, centroids = torch.randn(2, 9, 3, generator=rng), torch.randn(2, 4, 3, generator=rng)
    counts, present = torch.rand(2, 4, generator=rng), torch.rand(2, 9, generator=rng) < 0.7
    counts[0, 0] = 0
    moved, updated = update_centroids(rows, present, centroids, counts, 0.9)
    for k in range(2):
        mine = [min(range(4), key=lambda g: float((rows[k, i] - centroids[k, g]).norm())) for i in range(9)]
        assert nearest(rows, centroids)[k].tolist() == mine
        for g in range(4):
            members = [i for i in range(9) if mine[i] == g and present[k, i]]
            count = 0.9 * float(counts[k, g]) + 0.1 * len(members)
            total = 0.9 * counts[k, g] * centroids[k, g] + 0.1 * sum((rows[k, i] for i in members), torch.zeros(3))
            assert float(updated[k, g]) == pytest.approx(count, abs=1e-6)
            assert torch.allclose(moved[k, g], total / count if count > 0 else centroids[k, g], atol=1e-5)


def test_alignment_finds_the_best_of_all_permutations() -> None:
    nodes = torch.randn(3, 4, 5, generator=derive(0, "global"))
    similarity, matching = align(nodes)
    unit = nodes / nodes.norm(dim=2, keepdim=True)
    for i, j in itertools.product(range(3), repeat=2):
        cosine = unit[i] @ unit[j].T
        best = max(sum(float(cosine[k, p[k]]) for k in range(4)) / 4 for p in itertools.permutations(range(4)))
        assert float(similarity[i, j]) == pytest.approx(best, abs=1e-6)
        assert torch.equal(matching[i, j][matching[j, i]], torch.arange(4))


def test_permuted_global_nodes_average_to_themselves() -> None:
    first = torch.randn(6, 5, generator=derive(0, "global"))
    nodes = torch.stack([first, first[torch.randperm(6, generator=derive(1))], first.flip(0)])
    similarity, matching = align(nodes)
    assert torch.allclose(similarity, torch.ones(3, 3), atol=1e-6)
    weights = personal_weights(similarity, 5.0)
    assert torch.allclose(weights, torch.full((3, 3), 1 / 3), atol=1e-6)
    assert torch.allclose(average_global_nodes(nodes, matching, weights), nodes, atol=1e-6)


def test_adam_is_torchs_for_active_clients_and_leaves_others_alone() -> None:
    rng = derive(0, "adam")
    start = torch.randn(2, 3, 4, generator=rng)
    mine = {"w": start.clone()}
    optimizer = BatchedAdam(mine, 0.01, 0.1)
    singles = [start[k].clone().requires_grad_() for k in range(2)]
    oracles = [torch.optim.Adam([w], lr=0.01, weight_decay=0.1) for w in singles]
    for step in range(6):
        gradient = torch.randn(2, 3, 4, generator=rng)
        active = torch.tensor([True, step % 2 == 0])
        optimizer.step({"w": gradient}, None if bool(active.all()) else active)
        for k in range(2):
            if active[k]:
                singles[k].grad = gradient[k]
                oracles[k].step()
    assert torch.allclose(mine["w"], torch.stack([w.detach() for w in singles]), atol=1e-6)


def model(shape: GraphTransformer, inputs: int, classes: int, clients: int, seed: int = 0) -> dict[str, Tensor]:
    layout = shape.layout(inputs, classes)
    vectors = torch.stack([initial_model(layout, derive(seed, "model", k)) for k in range(clients)]).double()
    vectors += 0.1 * torch.randn(vectors.shape, generator=derive(seed, "shift"), dtype=torch.float64)
    return unflatten(vectors, layout)


def test_layer_is_the_attention_of_equations_2_to_6() -> None:
    """One node at a time: keys are its sampled nodes, each as often as it counts, and the global nodes."""
    shape = GraphTransformer(1, 8, 2, 12)
    weights = model(shape, 5, 3, 2)
    rng = derive(0, "rows")
    rows, centers = (torch.randn(2, n, 8, generator=rng, dtype=torch.float64) for n in (6, 3))
    # Scores that make node 0 count its first candidate three times and its second once, and others all four once.
    scores = torch.tensor([[3.0, 1.0, 0.0, 0.0], *[[1.0] * 4] * 5]).expand(2, 6, 4)
    candidates = Candidates(torch.randint(6, (2, 6, 4), generator=rng), scores)
    field = draw_field(candidates, None, torch.ones(2, 6, dtype=torch.bool), 1, 4, None)
    outputs, moved = hybrid_layer(weights, 0, 2, rows, field.layers[0], centers, NONE)

    def affine(k: int, name: str, x: Tensor) -> Tensor:
        return x @ weights[f"layers.0.{name}.weight"][k] + weights[f"layers.0.{name}.bias"][k]

    def norm(k: int, name: str, x: Tensor) -> Tensor:
        plain = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return plain * weights[f"layers.0.{name}.scale"][k] + weights[f"layers.0.{name}.shift"][k]

    def expected(k: int, own: Tensor, others: Tensor) -> Tensor:
        query = affine(k, "query", norm(k, "norm_attention", own))
        key, value = affine(k, "key_value", norm(k, "norm_attention", others)).view(-1, 2, 8).unbind(1)
        heads = [
            torch.softmax(key[:, h : h + 4] @ query[h : h + 4] / 2, 0) @ value[:, h : h + 4] for h in (0, 4)
        ]  # d_K = 4
        middle = own + affine(k, "output", torch.cat(heads))
        inner = torch.nn.functional.gelu(affine(k, "expand", norm(k, "norm_feed_forward", middle)))
        return middle + affine(k, "contract", inner)

    for k in range(2):
        for i in range(6):
            near = candidates.nodes[k, i]
            seen = torch.cat([rows[k, near[[0, 0, 0, 1]] if i == 0 else near], centers[k]])
            assert torch.allclose(outputs[k, i], expected(k, rows[k, i], seen), atol=1e-9)
        for g in range(3):
            assert torch.allclose(moved[k, g], expected(k, centers[k, g], centers[k]), atol=1e-9)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_mini_batch_gives_the_rows_of_the_whole_graph(layers: int) -> None:
    graph = example_graph(nodes=240, clients=2)
    clients = [graph.client(k) for k in range(2)]
    candidates = find_candidates(clients, "ppr", 6, 0.15, derive(0))
    weights = model(GraphTransformer(layers, 8, 2, 8), 4, 3, 2)
    rows = torch.randn(2, 120, 8, generator=derive(1), dtype=torch.float64)
    centers = torch.randn(2, 3, 8, generator=derive(2), dtype=torch.float64)
    everything = draw_field(candidates, None, torch.ones(2, 120, dtype=torch.bool), layers, 3, None)
    batch = torch.stack([torch.randperm(120, generator=derive(3, k))[:5] for k in range(2)])
    part = draw_field(candidates, batch, torch.ones(2, 5, dtype=torch.bool), layers, 3, None)
    network = GraphTransformer(layers, 8, 2, 8)
    whole = network.logits(weights, rows, everything.layers, centers, NONE)
    some = network.logits(weights, rows, part.layers, centers, NONE)
    assert torch.allclose(some, whole.gather(1, batch.unsqueeze(2).expand(-1, -1, 3)), atol=1e-9)
    short = trim([part, everything])
    assert torch.allclose(network.logits(weights, rows, short[0].layers, centers, NONE), some, atol=1e-9)
    assert layers == 1 or short[0].layers[0].neighbors.shape[1] < part.layers[0].neighbors.shape[1]
    if layers > 1:
        assert part.layers[0].neighbors.shape[1] < 120, "the first layer must be computed where it is needed only"
    assert part.reached.sum(1).le(20).all() and part.reached.gather(1, batch).all()


def test_all_pairs_give_the_same_attention_as_gathered_neighbors() -> None:
    """Both ways on repeated neighbours and on weighted, padded ones."""
    rng = derive(0, "pairs")
    query, key_value = torch.randn(2, 9, 2, 4, generator=rng), torch.randn(2, 9, 16, generator=rng)
    far = torch.randn(2, 3, 2, 4, generator=rng)
    neighbors, logs = torch.randint(9, (2, 9, 5), generator=rng), torch.randn(2, 9, 5, generator=rng)
    logs[:, :, 3:] = -math.inf
    for weighted in (None, logs):
        where = Neighborhood(None, neighbors, weighted)
        assert graph_transformer.PAIR_COST * 9 * 2 < 5 * 16, "few enough for all pairs"
        pairs = graph_transformer._attend(query, key_value, where, far, far)
        wide = torch.cat([key_value, torch.randn(2, 40, 16, generator=rng)], 1)  # further rows that nobody attends to
        assert torch.allclose(graph_transformer._attend(query, wide, where, far, far), pairs, atol=1e-5)
    assert graph_transformer.row_blocks(10, 3 * graph_transformer.NUMBERS_AT_ONCE // 10) == [
        slice(0, 3),
        slice(3, 6),
        slice(6, 9),
        slice(9, 10),
    ]


def test_attention_memory_is_linear_in_the_nodes() -> None:
    """What autograd keeps of a step: n (n_s + n_g) numbers and what no attention changes, where all pairs would be
    n^2."""

    def kept(nodes: int, near: int = 16, far: int = 10) -> int:
        candidates = Candidates(torch.zeros(1, nodes, near, dtype=torch.long), torch.ones(1, nodes, near))
        weights = {n: w.requires_grad_() for n, w in model(GraphTransformer(1, 16, 2, 16), 4, 3, 1).items()}
        field = draw_field(candidates, None, torch.ones(1, nodes, dtype=torch.bool), 1, near, None)
        total = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        rows, centers = torch.randn(1, nodes, 16, dtype=torch.float64), torch.randn(1, far, 16, dtype=torch.float64)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            hybrid_layer(weights, 0, 2, rows, field.layers[0], centers, NONE)
        return total

    assert kept(4000) == pytest.approx(2 * kept(2000), rel=0.02)
    least = kept(2000, 1, 1)
    for near, far in ((16, 1), (1, 16), (16, 10)):
        once, twice = (kept(2000, 1 + times * near, 1 + times * far) - least for times in (1, 2))
        assert twice == pytest.approx(2 * once, rel=0.05), (near, far)


def test_draws_follow_the_scores() -> None:
    scores = torch.tensor([0.6, 0.3, 0.1, 0.0])
    candidates = Candidates(torch.tensor([2, 0, 3, 1]).expand(1, 4000, 4), 5 * scores.expand(1, 4000, 4))
    rows = torch.arange(4000).unsqueeze(0)
    drawn = candidates.draw(rows, 3, derive(0))
    assert drawn.shape == (1, 4000, 3)
    assert torch.allclose(
        torch.bincount(drawn.flatten(), minlength=4) / 12000, torch.tensor([0.3, 0.0, 0.6, 0.1]), atol=0.02
    )
    nodes, log_counts = candidates.largest(rows, 2)
    assert nodes[0, 7].tolist() == [2, 0]
    assert torch.allclose(log_counts[0, 7].exp(), torch.tensor([4 / 3, 2 / 3]))
    assert candidates.largest(rows, 4)[1][0, 0, 3] == -math.inf


@pytest.mark.parametrize("strategy", ["ppr", "graphsage", "attribute", "neighbors"])
def test_candidates_of_every_strategy(strategy: str) -> None:
    graph = example_graph()
    clients = [graph.client(k) for k in range(3)]
    candidates = find_candidates(clients, strategy, 7, 0.15, derive(0))
    assert candidates.nodes.shape == (3, 20, 7)
    for k, client in enumerate(clients):
        hops = torch.zeros(20, 20)
        hops[client.edge_index[0], client.edge_index[1]] = 1
        near = (hops + hops @ hops) > 0
        unit = torch.nn.functional.normalize(client.x, dim=1)
        cosine = unit @ unit.T
        for i in range(20):
            found = candidates.nodes[k, i][candidates.scores[k, i] > 0]
            assert len(found) > 0 and len(set(found.tolist())) == len(found)
            assert bool((candidates.scores[k, i].diff() <= 0).all())
            if strategy == "graphsage":
                assert bool(near[i, found].all()) if bool(near[i].any()) else found.tolist() == [i]
                assert len(found) == max(min(int(near[i].sum()), 7), 1)
            elif strategy == "neighbors":
                assert (
                    sorted(found.tolist()) == (hops[i].nonzero().flatten().tolist()[:7] or [i])
                    or int(hops[i].sum()) > 7
                )
            elif strategy == "attribute":
                others = cosine[i].index_fill(0, found, -1)
                assert float(cosine[i, found].min()) >= float(others.max()) - 1e-6
    with pytest.raises(FglauditError, match="did you mean 'graphsage'"):
        find_candidates(clients, "graphsge", 7, 0.15, derive(0))


def test_shapes_are_checked() -> None:
    with pytest.raises(FglauditError, match="multiple of heads"):
        GraphTransformer(2, 10, 4, 8)
    with pytest.raises(FglauditError, match="layers >= 1"):
        GraphTransformer(0, 8, 4, 8)


def test_sage_averages_over_neighbors() -> None:
    graph = example_graph(nodes=40, clients=2)
    clients = [graph.client(k) for k in range(2)]
    candidates = find_candidates(clients, "neighbors", 20, 1.0, derive(0))
    network = Sage(2, 6)
    layout = network.layout(24, 3)
    weights = unflatten(torch.stack([initial_model(layout, derive(0, k)) for k in range(2)]).double(), layout)
    field = draw_field(candidates, None, torch.ones(2, 20, dtype=torch.bool), 2, 20, None)
    x = torch.stack([client.x for client in clients]).double()
    outputs = network.logits(weights, x @ weights["input.weight"], field.layers, x[:, :0], NONE)
    for k, client in enumerate(clients):
        mean = torch.zeros(20, 20, dtype=torch.float64)
        mean[client.edge_index[0], client.edge_index[1]] = 1
        mean += torch.diag((mean.sum(1) == 0).double())
        mean /= mean.sum(1, keepdim=True)
        first, second = weights["input.weight"][k], weights["layers.1.weight"][k]
        hidden = (x[k] @ first[:, :6] + mean @ x[k] @ first[:, 6:]).relu()
        assert torch.allclose(outputs[k], hidden @ second[:, :3] + mean @ hidden @ second[:, 3:], atol=1e-6)
