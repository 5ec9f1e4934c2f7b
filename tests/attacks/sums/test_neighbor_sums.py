"""Attacks on neighbour sums against graphs small enough to redo by hand, brute force, and properties that must hold on
any graph."""

from __future__ import annotations

import dataclasses
import importlib
import itertools

import pytest
import torch
from neighbor_sum_views import Recorded, dense_weights, federated, make_view, neighbor_sums, random_federated
from torch import Tensor

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks import ATTACKS
from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.rng import derive
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
CLIENT = Observer((0,))
OBSERVERS = [
    CLIENT,
    Observer((0, 1)),
    Observer((0,), topology=True),
    Observer((SERVER,), topology=True),
    Observer((SERVER, 0)),
    Observer(wire=True, topology=True),
]


def attack(name: str, **arguments: object) -> Attack:
    module, cls = ATTACKS[name].split(":")
    plugin: Attack = getattr(importlib.import_module(module), cls)(**arguments)
    return plugin


def rebuild(name: str, view: View, **arguments: object) -> Reconstruction:
    plugin = attack(name, **arguments)
    assert plugin.unsupported(view) is None
    result = plugin.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


def row(result: Reconstruction, node: int) -> Tensor:
    return result.rows[int((result.nodes == node).nonzero().item())]


def is_proven(result: Reconstruction, node: int) -> bool:
    assert result.proven is not None
    return bool(result.proven[int((result.nodes == node).nonzero().item())])


def star(rows: list[list[float]], extra: list[tuple[int, int]]) -> FederatedGraph:
    """Node 0 at client 0; its neighbours 1 ... at client 1; ``extra`` edges among the others give them degrees."""
    x = torch.tensor(rows, dtype=torch.float32)
    return federated(x, [(0, j) for j in range(1, len(rows))] + extra, [[0], list(range(1, len(rows)))])


@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda o: f"{o.name}{'+edges' if o.topology else ''}")
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_complete_equations_hold_for_the_true_rows(observer: Observer, hops: int, aggregate: str) -> None:
    graph = random_federated(1)
    equations = neighbor_equations(make_view(graph, observer, hops=hops, aggregate=aggregate))
    matrix = torch.zeros(equations.num_rows, equations.num_unknowns, dtype=torch.double)
    matrix[equations.rows, equations.columns] = equations.coefficients.nan_to_num(0.0)
    error = (matrix @ graph.x[equations.nodes].double() - equations.values).abs()
    complete = equations.hidden == 0
    assert int(complete.sum()) > 0
    assert bool((error <= equations.tolerance)[complete].all())
    # An incomplete equation lacks terms, all of them non-negative here.
    lacking = matrix @ graph.x[equations.nodes].double() <= equations.values + equations.tolerance
    assert bool(lacking[~complete].all())


def test_two_neighbours_of_different_degree_are_told_apart() -> None:
    # Degrees 1 and 2 (closed 2 and 3): entries are 0, 1/sqrt(2), 1/sqrt(3) or their sum.
    graph = star([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]], [(2, 3)])
    view = make_view(graph, Observer((0,)))
    # Node 3 has degree 2 as node 2 has: words 3 (both) and 0, 2 (one of them, undecided).
    result = rebuild("subset-sum", view)
    assert row(result, 1).tolist() == [0, 1, 1, 0]
    assert is_proven(result, 1)
    assert not is_proven(result, 2) and not is_proven(result, 3)
    both = row(result, 2) + row(result, 3)
    assert both.tolist() == [1, 0, 1, 2]


def test_a_second_sum_separates_neighbours_of_equal_degree() -> None:
    # Nodes 2 and 3 share degree 2; node 1 (also client 0) has node 2 alone.
    x = torch.tensor([[0, 0, 0.0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    graph = federated(x, [(0, 2), (0, 3), (1, 2), (3, 1)], [[0, 1], [2], [3]])
    result = rebuild("subset-sum", make_view(graph, CLIENT))
    assert not is_proven(result, 2)  # both neighbours are shared by both own nodes: the sums are the same equation
    graph = federated(x, [(0, 2), (0, 3), (1, 2)], [[0, 1], [2], [3]])
    joint = rebuild("subset-sum", make_view(graph, CLIENT))
    assert torch.equal(joint.rows, x[joint.nodes])
    assert is_proven(joint, 2) and is_proven(joint, 3)


def test_proven_bits_are_those_on_which_all_solutions_agree() -> None:
    """Brute force over all 2^U columns of bits, feature by feature."""
    for seed in range(6):
        graph = random_federated(seed, nodes=16, features=6, clients=2, density=0.3)
        for aggregate, name in (("normalised", "subset-sum"), ("counts", "maximum-a-posteriori")):
            view = make_view(graph, CLIENT, aggregate=aggregate)
            equations = neighbor_equations(view)
            matrix = torch.zeros(equations.num_rows, equations.num_unknowns, dtype=torch.double)
            matrix[equations.rows, equations.columns] = equations.coefficients
            patterns = torch.tensor(list(itertools.product([0.0, 1.0], repeat=equations.num_unknowns))).double()
            reached = patterns @ matrix.T
            unique = torch.ones(equations.num_unknowns, dtype=torch.bool)
            for f in range(graph.num_features):
                fits = ((reached - equations.values[:, f]).abs() <= equations.tolerance[:, f]).all(1)
                solutions = patterns[fits]
                unique &= (solutions == solutions[0]).all(0)
            result = rebuild(name, view)
            assert result.proven is not None
            assert torch.equal(result.nodes, equations.nodes)
            assert torch.equal(result.proven, unique)
            assert torch.equal(result.rows[unique], graph.x[result.nodes[unique]])


def test_row_space_marks_exactly_the_determined_rows() -> None:
    graph = random_federated(3)
    for aggregate in ("normalised", "counts"):
        view = make_view(graph, Observer((0, 1)), aggregate=aggregate)
        equations = neighbor_equations(view)
        matrix = torch.zeros(equations.num_rows, equations.num_unknowns, dtype=torch.double)
        matrix[equations.rows, equations.columns] = equations.coefficients
        rank = torch.linalg.matrix_rank(matrix)
        unit = torch.eye(equations.num_unknowns, dtype=torch.double)
        inside = torch.stack([torch.linalg.matrix_rank(torch.cat([matrix, e[None]])) == rank for e in unit])
        result = rebuild("row-space", view)
        assert result.proven is not None
        assert torch.equal(result.proven, inside)
        assert 0 < int(inside.sum()) < len(inside)
        assert torch.equal(result.rows[inside], graph.x[result.nodes[inside]])


def test_row_space_solves_real_valued_rows() -> None:
    graph = random_federated(4)
    rng = torch.Generator().manual_seed(0)
    graph = dataclasses.replace(graph, x=torch.randn(graph.x.shape, generator=rng))
    graph = federated(graph.x, graph.edge_index.T.tolist(), [c.tolist() for c in graph.clients])
    result = rebuild("row-space", make_view(graph, Observer((SERVER,), topology=True)))
    assert result.proven is not None and bool(result.proven.any())
    truth = graph.x[result.nodes[result.proven]]
    assert torch.allclose(result.rows[result.proven], truth, atol=1e-3)


def test_counts_of_none_and_all_are_propagated() -> None:
    # Sums {1,2,3} and {1,2}: their difference is row 3; words that neither or both of 1 and 2 have are settled by
    # bounds.
    x = torch.tensor([[0, 0, 0.0], [0, 0, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0]])
    graph = federated(x, [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3)], [[0, 1], [2, 3, 4]])
    result = rebuild("integer-propagation", make_view(graph, CLIENT, aggregate="counts"))
    assert is_proven(result, 4) and row(result, 4).tolist() == [1, 1, 0]
    assert not is_proven(result, 2)
    assert row(result, 2)[:2].tolist() == row(result, 3)[:2].tolist() == [1, 0]


def test_the_server_reads_partial_sums_without_knowing_edges() -> None:
    graph = random_federated(5, nodes=80, features=120, clients=8)
    result = rebuild("server-partial-sums", make_view(graph, Observer((SERVER,))))
    same = (result.rows == graph.x[result.nodes]).all(1)
    assert same.float().mean() > 0.8
    assert len(result.nodes) == graph.num_nodes
    # A part at a node's own client that holds nothing but the node is exact.
    owner = graph.owner()
    inner = dense_weights(graph, "counts") * (owner[:, None] == owner[None, :])
    alone = inner.sum(1) == 1
    assert bool(same[alone[result.nodes]].all())


@pytest.mark.parametrize("name", [name for name in ATTACKS if type(attack(name)).quantity == "features"])
@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
@pytest.mark.parametrize(
    "observer",
    [*OBSERVERS, Observer((0,), degrees=False), Observer((SERVER,))],
    ids=lambda o: f"{o.name}-{o.knowledge}",
)
@pytest.mark.parametrize("scaled", [False, True])
def test_every_attack_finds_a_planted_plain_leak(name: str, aggregate: str, observer: Observer, scaled: bool) -> None:
    graph = random_federated(6, nodes=90, features=80)
    if scaled:
        graph = federated(
            graph.x / graph.x.sum(1, keepdim=True), graph.edge_index.T.tolist(), [c.tolist() for c in graph.clients]
        )
    for hops in (1, 2):
        view = make_view(graph, observer, hops=hops, aggregate=aggregate)
        plugin = attack(name)
        reason = plugin.unsupported(view)
        if reason is not None:
            assert reason.strip()
            continue
        planted = planted_for(plugin, view, derive(0, "plant"))
        result = plugin.run(planted.view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction)
        position = {int(node): i for i, node in enumerate(result.nodes.tolist())}
        found = [
            int(node) in position and torch.allclose(result.rows[position[int(node)]], truth, atol=1e-4)
            for node, truth in zip(planted.nodes, planted.rows, strict=True)
        ]
        assert len(found) > 0 and sum(found) >= 0.95 * len(found)


@pytest.mark.parametrize("name", ["subset-sum", "row-space", "integer-propagation", "maximum-a-posteriori"])
def test_messages_of_noise_yield_nothing(name: str) -> None:
    graph = random_federated(7)
    view = make_view(graph, CLIENT)
    rng = torch.Generator().manual_seed(0)
    noise = []
    for batch in neighbor_sums(graph):
        assert isinstance(batch.payload, NeighborSums)
        drawn = torch.randn(batch.payload.sums.shape, generator=rng)
        noise.append(dataclasses.replace(batch, payload=dataclasses.replace(batch.payload, sums=drawn)))
    result = rebuild(name, dataclasses.replace(view, messages=Recorded(tuple(n.select(_seen(n)) for n in noise))))
    control = prior_only(view, result.nodes, derive(0, "control"))
    truth = graph.x[result.nodes]
    assert (result.rows == truth).all(1).float().mean() <= (control.rows == truth).all(1).float().mean() + 0.02


def _seen(batch: object) -> Tensor:
    return (batch.senders == 0) | (batch.receivers == 0)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("name", ["subset-sum", "row-space", "integer-propagation", "maximum-a-posteriori"])
def test_node_numbers_and_edge_order_do_not_matter(name: str) -> None:
    graph = random_federated(8)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    edges = order[graph.edge_index].flip(1)
    x = torch.empty_like(graph.x)
    x[order] = graph.x
    renamed = federated(x, edges.T.tolist(), [order[c].tolist() for c in graph.clients])
    first = rebuild(name, make_view(graph, CLIENT))
    second = rebuild(name, make_view(renamed, CLIENT))
    place = torch.argsort(second.nodes)[torch.searchsorted(second.nodes.sort().values, order[first.nodes])]
    assert first.proven is not None and second.proven is not None
    assert torch.equal(first.proven, second.proven[place])
    assert torch.equal(first.rows[first.proven], second.rows[place][first.proven])


def test_only_messages_and_own_data_are_read() -> None:
    """Rows of others that no message carries to the observer change nothing."""
    graph = random_federated(9)
    view = make_view(graph, CLIENT)
    exposed = torch.isin(torch.arange(graph.num_nodes), torch.cat([graph.clients[0], view.own[0].remote_nodes]))
    x = graph.x.clone()
    x[~exposed] = 1 - x[~exposed]
    assert not bool(exposed.all())
    other = make_view(federated(x, graph.edge_index.T.tolist(), [c.tolist() for c in graph.clients]), CLIENT)
    for name in ("subset-sum", "row-space", "integer-propagation", "maximum-a-posteriori"):
        assert torch.equal(rebuild(name, view).rows, rebuild(name, other).rows)


def test_vanishing_noise_gives_the_noise_free_result_and_much_noise_the_prior() -> None:
    graph = random_federated(10, nodes=120, features=60)
    truth = make_view(graph, CLIENT)
    exact = rebuild("maximum-a-posteriori", truth)
    faint = rebuild("maximum-a-posteriori", make_view(graph, CLIENT, std=1e-6))
    assert exact.proven is not None
    assert torch.equal(faint.rows[exact.proven], exact.rows[exact.proven])
    assert faint.proven is not None and not bool(faint.proven.any())
    errors = [
        float(
            (rebuild("maximum-a-posteriori", make_view(graph, CLIENT, std=std)).rows != graph.x[exact.nodes])
            .float()
            .mean()
        )
        for std in (1e-6, 0.1, 3.0)
    ]
    assert errors[0] < errors[1] < errors[2]


def test_own_uploads_are_recomputed_where_they_were_not_recorded() -> None:
    graph = random_federated(11)
    view = make_view(graph, CLIENT)
    received = tuple(
        b.select(b.receivers == 0) for b in view.messages.of(NeighborSums) if bool((b.receivers == 0).any())
    )
    blind = dataclasses.replace(view, messages=Recorded(received))
    assert torch.allclose(neighbor_equations(view).values, neighbor_equations(blind).values, atol=1e-6)


def test_prior_only_reads_no_message() -> None:
    graph = random_federated(12)
    view = make_view(graph, CLIENT)
    silent = dataclasses.replace(view, messages=Recorded(()))
    nodes = view.own[0].remote_nodes
    guess = prior_only(view, nodes, derive(0, "control"))
    assert torch.equal(guess.rows, prior_only(silent, nodes, derive(0, "control")).rows)
    assert guess.rows.shape == (len(nodes), graph.num_features)
    assert torch.equal(guess.rows, guess.rows.round()) and bool((guess.rows.sum(1) > 0).all())


def test_reasons_for_refusal() -> None:
    graph = random_federated(13)
    no_degrees = make_view(graph, Observer((0,), degrees=False))
    assert "degrees" in (attack("row-space").unsupported(no_degrees) or "")
    assert "counts" in (attack("subset-sum").unsupported(make_view(graph, CLIENT, aggregate="counts")) or "")
    assert "topology" in (attack("subset-sum").unsupported(make_view(graph, Observer((SERVER,)))) or "")
    assert "NeighborSums" in (
        attack("row-space").unsupported(dataclasses.replace(no_degrees, messages=Recorded(()))) or ""
    )
    assert "server" in (attack("server-partial-sums").unsupported(make_view(graph, CLIENT)) or "")
