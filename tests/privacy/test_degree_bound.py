"""How many losses one node can change where nodes keep at most D neighbours: the derived bound against brute force on
small graphs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fglaudit.context import Examples
from fglaudit.errors import FglauditError
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import ClientGraph, FederatedGraph, Graph, canonical_edges, whole
from fglaudit.privacy.degree_bound import bound_degrees, changed_losses, node_examples, pair_priorities
from fglaudit.testing import example_graph


def all_train(edges: Tensor, nodes: int) -> ClientGraph:
    """Return a client with all of a graph, every node of which trains."""
    every = torch.ones(nodes, dtype=torch.bool)
    graph = Graph(torch.eye(nodes), torch.zeros(nodes, dtype=torch.long), canonical_edges(edges, nodes), "small")
    return whole(graph, every, ~every, ~every).client(0)


def losses(client: ClientGraph, layers: int, *, symmetric: bool) -> Tensor:
    """Return a number per node [n] that depends on all that a GNN's output can depend on: layers of random
    aggregation."""
    count = len(client.nodes)
    row, column = client.edge_index
    dense = torch.zeros(count, count, dtype=torch.float64)
    dense[row, column] = 1
    dense += torch.eye(count, dtype=torch.float64)
    scale = dense.sum(1).rsqrt()
    weights = scale.unsqueeze(1) * dense * scale if symmetric else dense / dense.sum(1, keepdim=True)
    values = client.x.double() @ torch.linspace(1, 2, client.x.shape[1], dtype=torch.float64).unsqueeze(1)
    for _ in range(layers):
        values = (weights @ values).sin() + 0.1 * values
    return values.squeeze(1)


def without(client: ClientGraph, node: int) -> ClientGraph:
    """Return the client with the node's features zero and its edges gone; it stays as a place that trains on
    nothing."""
    row, column = client.edge_index
    x = client.x.clone()
    x[node] = 0
    return dataclasses.replace(client, x=x, edge_index=client.edge_index[:, (row != node) & (column != node)])


def count_changed(client: ClientGraph, node: int, bound: int, seed: int, layers: int, *, symmetric: bool) -> int:
    """Return how many losses change if the node is taken away before the degrees are bounded, its own among them."""
    before = losses(bound_degrees(client, bound, seed), layers, symmetric=symmetric)
    after = losses(bound_degrees(without(client, node), bound, seed), layers, symmetric=symmetric)
    changed = (before - after).abs() > 1e-12
    changed[node] = True
    return int(changed.sum().item())


def facts(layers: int, *, by_degree: bool, most: int = 10**6) -> Examples:
    return Examples(1, layers, by_degree, across=False, per_node=1, most=most)


@pytest.mark.parametrize("bound", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("symmetric", [False, True])
def test_no_node_changes_more_losses_than_stated(bound: int, layers: int, symmetric: bool) -> None:
    stated = changed_losses(facts(layers, by_degree=symmetric), bound, private_edges=True)
    rng = torch.Generator().manual_seed(10 * bound + layers)
    worst = 0
    for seed in range(12):
        client = all_train(torch.randint(24, (2, 20 + 4 * seed), generator=rng), 24)
        degrees = torch.bincount(client.edge_index[0], minlength=24)
        for node in (degrees <= bound).nonzero().squeeze(1).tolist():
            worst = max(worst, count_changed(client, node, bound, seed, layers, symmetric=symmetric))
    assert worst <= stated
    assert worst > 1


def swap(bound: int) -> tuple[ClientGraph, int]:
    """Return a graph in which a node of ``bound`` neighbours, taken away, lets each of them take in another, and a seed
    for it.

    Node 0 is the one; nodes 1 ... D its neighbours u, each with D - 1 others and one w, which comes last in u's
    ranking.
    """
    edges, following = [], bound + 1
    for u in range(1, bound + 1):
        edges.append((0, u))
        for _ in range(bound):  # the last one is w
            edges.append((u, following))
            following += 1
    client = all_train(torch.tensor(edges).T, following)
    for seed in range(10000):
        mine, last = [], []
        for u in range(1, bound + 1):
            others = torch.tensor([b if a == u else a for a, b in edges if u in (a, b)])
            priority = pair_priorities(torch.full_like(others, u), others, seed)
            last.append(int(others[priority.argmax()].item()) == int(others.max().item()))
            mine.append(True)
        if all(last):
            return client, seed
    raise AssertionError("no seed ranks every w last")


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_the_bound_is_reached_and_the_one_without_the_rule_is_broken(bound: int) -> None:
    client, seed = swap(bound)
    changed = count_changed(client, 0, bound, seed, 1, symmetric=False)
    assert changed == changed_losses(facts(1, by_degree=False), bound, private_edges=True) == 1 + 2 * bound
    assert changed > 1 + bound  # what a sampler taken for a local act would promise


@pytest.mark.parametrize("symmetric", [False, True])
def test_public_edges_leave_the_ball(symmetric: bool) -> None:
    bound, layers = 3, 2
    stated = changed_losses(facts(layers, by_degree=symmetric), bound, private_edges=False)
    assert stated == 1 + bound + bound * (bound - 1)
    rng = torch.Generator().manual_seed(3)
    worst = 0
    for seed in range(10):
        client = bound_degrees(all_train(torch.randint(24, (2, 70), generator=rng), 24), bound, seed)
        before = losses(client, layers, symmetric=symmetric)
        for node in range(24):
            x = client.x.clone()
            x[node] = torch.rand(24, generator=rng)
            after = losses(dataclasses.replace(client, x=x), layers, symmetric=symmetric)
            worst = max(worst, int(((before - after).abs() > 1e-12).sum().item()))
    assert worst == stated


def test_formulas_are_those_of_the_design_where_nobody_has_more_than_d() -> None:
    """Degrees at most D to begin with: the rule drops nothing, and a removal moves 1 + D + D(D-1) losses, D(D-1)^2 more
    by degrees."""
    bound, tree = 3, [(0, 1), (0, 2), (0, 3)]
    following = 4
    frontier = [1, 2, 3]
    for _ in range(3):
        grown = []
        for node in frontier:
            for _ in range(bound - 1):
                tree.append((node, following))
                grown.append(following)
                following += 1
        frontier = grown
    client = all_train(torch.tensor(tree).T, following)
    assert torch.equal(bound_degrees(client, bound, 0).edge_index, client.edge_index)
    mean = count_changed(client, 0, bound, 0, 2, symmetric=False)
    symmetric = count_changed(client, 0, bound, 0, 2, symmetric=True)
    assert mean == 1 + bound + bound * (bound - 1)
    assert symmetric == mean + bound * (bound - 1) ** 2


def test_a_hub_moves_neighbourhoods_without_bound() -> None:
    """Why the promise about edges is for nodes with at most D of them: this one has 30 and changes more than D = 2
    allows."""
    leaves = 30
    edges = [(0, leaf) for leaf in range(1, leaves + 1)]
    edges += [(leaf, leaves + 2 * leaf + end) for leaf in range(1, leaves + 1) for end in range(2)]
    client = all_train(torch.tensor(edges).T, 3 * leaves + 2)
    most = max(count_changed(client, 0, 2, seed, 1, symmetric=False) for seed in range(3))
    assert most > changed_losses(facts(1, by_degree=False), 2, private_edges=True)


def test_kept_edges_are_few_symmetric_and_agreed_on_by_both_owners() -> None:
    graph = example_graph(nodes=90, clients=4)
    for bound in (1, 2, 4):
        clients = [bound_degrees(graph.client(k), bound, 7) for k in range(4)]
        edges = KeptEdges.of(clients, graph.degrees())
        pairs = set(zip(edges.receivers().tolist(), edges.source.tolist(), strict=True))
        assert all((j, i) in pairs for i, j in pairs)
        assert int(edges.start.diff().max().item()) - 1 <= bound
        real = set(zip(*graph.edge_index.tolist(), strict=True))
        assert {(i, j) for i, j in pairs if i != j} <= real
        degrees = graph.degrees()
        assert all((i, j) in pairs for i, j in real if degrees[i] <= bound and degrees[j] <= bound)


def test_priorities_are_symmetric_and_spread() -> None:
    first, second = torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij")
    priority = pair_priorities(first.flatten(), second.flatten(), 1)
    assert torch.equal(priority, pair_priorities(second.flatten(), first.flatten(), 1))
    assert bool((priority >= 0).all())
    assert len(torch.unique(priority)) == 300 * 301 // 2
    share = priority.double() / 2**63
    assert abs(float(share.mean().item()) - 0.5) < 0.01 and abs(float(share.std().item()) - 12**-0.5) < 0.01


def test_the_count_is_capped_by_the_losses_there_are() -> None:
    graph = example_graph()
    mine = node_examples(graph, passes=1, hops=2, by_degree=True)
    every = node_examples(graph, passes=1, hops=2, by_degree=True, pooled=True)
    sizes = [int(train.sum().item()) for train in graph.train]
    assert changed_losses(mine, 5, private_edges=True) == max(sizes)
    assert changed_losses(every, 5, private_edges=True) == sum(sizes)
    assert changed_losses(node_examples(graph, passes=1, hops=0, by_degree=True), 5, private_edges=True) == 1


def test_nodes_of_several_clients_count_at_each() -> None:
    graph = example_graph()
    both = dataclasses.replace(graph, clients=(graph.clients[0],) * 2, train=(graph.train[0],) * 2)
    assert isinstance(both, FederatedGraph)
    assert node_examples(both, passes=1, hops=0).per_node == 2


def test_bad_bounds_are_refused() -> None:
    client = example_graph().client(0)
    with pytest.raises(FglauditError, match="at least 1; got 0"):
        bound_degrees(client, 0, 0)
    with pytest.raises(FglauditError, match="hidden"):
        bound_degrees(dataclasses.replace(client, remote_degrees=None), 2, 0)
