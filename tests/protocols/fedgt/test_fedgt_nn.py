"""FedGT's parts but its layers against closed forms, brute force and plain loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import canonical_edges
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.nn.laplacian import laplacian_encoding
from fglaudit.nn.matched_nodes import align, average_global_nodes
from fglaudit.nn.online_clustering import nearest, update_centroids
from fglaudit.protocols.fedgt.alignment import personal_weights
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates, find_candidates
from fglaudit.protocols.fedgt.ppr import exact_pagerank, largest_scores, pushed_pagerank
from fglaudit.rng import derive
from fglaudit.testing import example_graph


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
