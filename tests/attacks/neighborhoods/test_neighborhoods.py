"""Attacks on FedGAT's messages, simulated from the paper's definitions, on graphs small enough to redo by hand and
random ones."""

from __future__ import annotations

import dataclasses
import importlib
import itertools

import pytest
import torch
from masked_views import closed_neighbourhood, masked_batches, masked_view, unit_rows
from neighbor_sum_views import federated, random_federated
from scored_runs import self_test
from torch import Tensor

from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks import ATTACKS
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import matched_exact
from fglaudit.rng import derive
from fglaudit.testing import check_attack
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
CLIENT = Observer((0,))
MATRIX = ("joint-diagonalisation", "second-moments")
VECTOR = ("vector-columns", "second-moments")
CASES = [(name, False) for name in MATRIX] + [(name, True) for name in VECTOR]


def attack(name: str) -> Attack:
    module, cls = ATTACKS[name].split(":")
    plugin: Attack = getattr(importlib.import_module(module), cls)()
    return plugin


def rebuild(name: str, view: View) -> Reconstruction:
    plugin = attack(name)
    assert plugin.unsupported(view) is None
    result = plugin.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


def remote_nodes(view: View) -> Tensor:
    mine = torch.cat([c.nodes for c in view.own])
    remote = torch.unique(torch.cat([c.remote_nodes for c in view.own]))
    foreign: Tensor = remote[~torch.isin(remote, mine)]
    return foreign


def wrong(result: Reconstruction, graph: FederatedGraph) -> Tensor:
    """Which rows are not those of the node they are assigned to."""
    truth = graph.x[result.nodes]
    return torch.gt((result.rows - truth).abs().amax(1), 1e-3 * truth.abs().amax(1))


def assert_all_rows_found(result: Reconstruction, view: View, graph: FederatedGraph) -> None:
    remote = remote_nodes(view)
    assert matched_exact(result.rows, graph.x[remote], graph.features) == len(remote)
    assert torch.equal(result.nodes.sort().values, remote)
    assert result.proven is not None
    assert not bool((result.proven & wrong(result, graph)).any())


def with_hard_rows(graph: FederatedGraph) -> FederatedGraph:
    """The same graph with equal rows and rows of zeros, also in one neighbourhood."""
    x = graph.x.clone()
    row, column = graph.edge_index
    hub = int(torch.bincount(row).argmax().item())
    near = column[row == hub]
    x[near[0]] = x[near[1]]
    x[near[2]] = x[near[3]] = 0.0
    x[5] = x[7]
    return dataclasses.replace(graph, x=x)


@pytest.mark.parametrize(("name", "vector"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_row_of_every_neighbour_is_found(name: str, vector: bool, seed: int) -> None:
    graph = with_hard_rows(random_federated(seed))
    for k in range(3):
        view = masked_view(graph, Observer((k,)), vector=vector)
        assert_all_rows_found(rebuild(name, view), view, graph)


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_real_valued_rows(name: str, vector: bool) -> None:
    graph = random_federated(3)
    x = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(1))
    for scale in (0.05, 1.0):  # norms below 1 survive, longer rows keep their direction
        real = dataclasses.replace(graph, x=scale * x, features=FeatureKind.REAL)
        view = masked_view(real, CLIENT, vector=vector)
        result = rebuild(name, view)
        sent = dataclasses.replace(real, x=unit_rows(real.x))
        assert_all_rows_found(
            dataclasses.replace(result, proven=torch.zeros(len(result.nodes), dtype=torch.bool)), view, sent
        )
        assert result.proven is not None
        assert not bool((result.proven & wrong(result, real)).any())
        assert bool(result.proven.any()) == (scale < 1)


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_row_normalised_rows(name: str, vector: bool) -> None:
    graph = with_hard_rows(random_federated(4))
    x = graph.x / graph.x.sum(1, keepdim=True).clamp(min=1)
    graph = dataclasses.replace(graph, x=x, features=FeatureKind.SCALED_BINARY)
    view = masked_view(graph, CLIENT, vector=vector)
    assert_all_rows_found(rebuild(name, view), view, graph)


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_one_neighbour_is_read_in_the_open(name: str, vector: bool) -> None:
    """Edge 0-1, one node at either client: the neighbourhood is the observer's own node and one other."""
    x = torch.tensor([[1.0, 0, 1, 0], [0, 1, 1, 1]])
    graph = federated(x, [(0, 1)], [[0], [1]])
    result = rebuild(name, masked_view(graph, CLIENT, vector=vector))
    assert result.nodes.tolist() == [1]
    assert result.rows.tolist() == [[0, 1, 1, 1]]
    assert result.proven is not None and bool(result.proven.all())


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_second_neighbourhood_tells_two_neighbours_apart(name: str, vector: bool) -> None:
    """Nodes 0 and 1 are the observer's. Node 0 has neighbours 2 and 3, node 1 has 3: what both have is node 3's."""
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    graph = federated(x, [(0, 2), (0, 3), (1, 3)], [[0, 1], [2, 3]])
    view = masked_view(graph, CLIENT, vector=vector)
    result = rebuild(name, view)
    assert_all_rows_found(result, view, graph)
    assert not bool(wrong(result, graph).any())
    assert result.proven is not None and bool(result.proven.all())
    # Without the second edge nothing tells 2 from 3: both rows are found, neither assignment is proven.
    graph = federated(x, [(0, 2), (0, 3)], [[0, 1], [2, 3]])
    view = masked_view(graph, CLIENT, vector=vector)
    result = rebuild(name, view)
    assert_all_rows_found(result, view, graph)
    assert result.proven is not None and not bool(result.proven.any())


def test_proven_assignments_are_those_on_which_all_consistent_ones_agree() -> None:
    """Brute force over all ways to give the remote nodes rows; propagation may prove less, never more."""
    shares = []
    for seed in range(8):
        graph = random_federated(seed, nodes=12, features=10, clients=2, density=0.3)
        view = masked_view(graph, CLIENT)
        remote = remote_nodes(view).tolist()
        rows = torch.unique(graph.x[remote], dim=0)
        kinds = {tuple(r.tolist()): i for i, r in enumerate(rows)}
        of_node = {j: kinds[tuple(graph.x[j].tolist())] for j in remote}
        groups = [[j for j in closed_neighbourhood(graph, int(i)) if j in of_node] for i in graph.clients[0]]
        wanted = [sorted(of_node[j] for j in group) for group in groups]
        fits = []
        for guess in set(itertools.permutations(of_node.values())):
            given = dict(zip(remote, guess, strict=True))
            if all(sorted(given[j] for j in group) == want for group, want in zip(groups, wanted, strict=True)):
                fits.append(guess)
        agreed = {j for i, j in enumerate(remote) if len({fit[i] for fit in fits}) == 1}
        result = rebuild("joint-diagonalisation", view)
        assert result.proven is not None
        proven = set(result.nodes[result.proven].tolist())
        assert proven <= agreed
        shares.append((len(proven), len(agreed)))
    assert sum(p for p, _ in shares) >= 0.9 * sum(a for _, a in shares) > 0


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_names_of_nodes_and_order_of_messages_do_not_matter(name: str, vector: bool) -> None:
    graph = random_federated(5)
    batches = masked_batches(graph, vector=vector)
    view = masked_view(graph, CLIENT, vector=vector, batches=batches)
    result = rebuild(name, view)
    turned = [b.select(torch.ones(len(b.senders), dtype=torch.bool)) for b in reversed(batches)]
    again = rebuild(name, masked_view(graph, CLIENT, vector=vector, batches=turned))
    order = torch.randperm(graph.num_nodes, generator=derive(3, "names"))
    inverse = order.argsort()
    renamed = federated(
        graph.x[inverse], order[graph.edge_index].T.tolist(), [order[c].tolist() for c in graph.clients]
    )
    fields = [b.payload.tensors() for b in batches]
    moved = [
        dataclasses.replace(b, payload=type(b.payload).from_tensors(f | {"node": order[f["node"]]}))
        for b, f in zip(batches, fields, strict=True)
    ]
    third = rebuild(name, masked_view(renamed, CLIENT, vector=vector, batches=moved))
    assert result.proven is not None and again.proven is not None and third.proven is not None
    proven = dict(zip(result.nodes[result.proven].tolist(), result.rows[result.proven].tolist(), strict=True))
    assert len(proven) > 10
    assert proven == dict(zip(again.nodes[again.proven].tolist(), again.rows[again.proven].tolist(), strict=True))
    names = inverse[third.nodes[third.proven]].tolist()
    assert proven == dict(zip(names, third.rows[third.proven].tolist(), strict=True))


@pytest.mark.parametrize(("name", "vector"), [("joint-diagonalisation", False), ("vector-columns", True)])
def test_noise_on_the_messages(name: str, vector: bool) -> None:
    graph = random_federated(0)
    found = []
    for std in (1e-3, 1e-2, 10.0):
        view = masked_view(graph, CLIENT, vector=vector, std=std)
        result = rebuild(name, view)
        remote = remote_nodes(view)
        assert result.proven is not None and not bool(result.proven.any())
        found.append(matched_exact(result.rows, graph.x[remote], graph.features) / len(remote))
    assert found[0] == found[1] == 1.0
    assert found[2] < 0.2
    assert all(attack(name).models(fact) for fact in view.public.facts)
    unaware = attack("second-moments")
    assert unaware.unsupported(view) is None
    assert not any(unaware.models(fact) for fact in view.public.facts)
    proven = rebuild("second-moments", view).proven
    assert proven is not None and not bool(proven.any())


def test_linearly_dependent_rows_need_higher_moments() -> None:
    """Rows a, b and a + b at one node: two orders of moments do not determine them, more do."""
    x = torch.tensor([[0.0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]])
    graph = federated(x, [(0, 1), (0, 2), (0, 3), (0, 4)], [[0], [1, 2, 3, 4]])
    for name, vector in CASES:
        view = masked_view(graph, CLIENT, vector=vector)
        assert_all_rows_found(rebuild(name, view), view, graph)


def test_the_server_reads_uploads() -> None:
    graph = random_federated(1)
    view = masked_view(graph, Observer((SERVER,)))
    result = rebuild("raw-features", view)
    assert sorted(result.nodes.tolist()) == list(range(graph.num_nodes))
    assert not bool(wrong(result, graph).any())
    assert attack("joint-diagonalisation").unsupported(view) is not None
    assert attack("raw-features").unsupported(masked_view(graph, CLIENT)) is not None
    assert len(rebuild("raw-features", masked_view(graph, Observer((SERVER, 0)))).nodes) == graph.num_nodes - len(
        graph.clients[0]
    )


@pytest.mark.parametrize(("name", "vector"), [*CASES, ("raw-features", False)])
def test_self_test_passes(name: str, vector: bool) -> None:
    graph = random_federated(2)
    observer = Observer((SERVER,)) if name == "raw-features" else CLIENT
    view = masked_view(graph, observer, vector=vector)
    targets = remote_nodes(view) if view.own else torch.arange(graph.num_nodes)
    control = prior_only(view, targets, derive(0, "control"))
    game = Game.about(targets, graph.x[targets], graph.features)
    assert self_test(attack(name), view, game, control) is None
    check_attack(attack(name), view)


def test_several_observers_and_unknown_members() -> None:
    graph = random_federated(6)
    view = masked_view(graph, Observer((0, 1)))
    assert_all_rows_found(rebuild("joint-diagonalisation", view), view, graph)
    for known in (False, True):  # every node's own neighbourhood is sent, which names its row
        wire = rebuild("joint-diagonalisation", masked_view(graph, Observer(wire=True, topology=known)))
        assert sorted(wire.nodes.tolist()) == list(range(graph.num_nodes))
        assert not bool(wrong(wire, graph).any())


@pytest.mark.parametrize(("name", "vector"), CASES)
def test_neighbourhoods_of_remote_nodes_name_them(name: str, vector: bool) -> None:
    """A client that also gets its neighbours' messages finds their rows named, and rows of nodes it has never heard
    of."""
    graph = random_federated(6)
    view = masked_view(graph, CLIENT)
    remote = remote_nodes(view)
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    reached[remote] = reached[view.own[0].nodes] = True
    batches = masked_batches(graph, vector=vector)
    nodes = [b.payload.tensors()["node"] for b in batches]
    sent = [
        dataclasses.replace(b, receivers=torch.where(reached[n], 0, 1)) for b, n in zip(batches, nodes, strict=True)
    ]
    result = rebuild(name, masked_view(graph, CLIENT, vector=vector, batches=sent))
    named = result.nodes >= 0
    assert torch.equal(result.nodes[named].sort().values, remote)
    assert result.proven is not None and bool(result.proven[named].all()) and not bool(result.proven[~named].any())
    assert not bool(wrong(result, graph)[named].any())
    row, column = graph.edge_index
    beyond = torch.unique(column[reached[row] & ~reached[column]])
    assert (
        matched_exact(result.rows[~named], graph.x[beyond], graph.features)
        == len(torch.unique(graph.x[beyond], dim=0))
        > 0
    )
