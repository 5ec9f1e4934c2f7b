"""Attacks on neighbour sums where the server reads totals only: secure aggregation hides parts, not what totals
show."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from neighbor_sum_views import random_federated
from stated_facts import stated
from swapped_data import with_data

from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations
from fglaudit.attacks.sums.integer_propagation import IntegerPropagation
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.recorded_sums import sees_parts
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.facts import Absent
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, check_attack, record
from fglaudit.view import Observer

GRAPH = random_federated(3, nodes=60, features=40, clients=5)
KNOWING = Observer(parties=(SERVER,), topology=True)
OBSERVERS = (Observer(parties=(SERVER,)), KNOWING, Observer(parties=(SERVER, 0), topology=True), Observer(wire=True))


def run(hops: int = 1, aggregate: Weights = "normalised", dropouts: float = 0.0, seed: int = 0) -> Run:
    protocol = FedGCN(hops=hops, aggregate=aggregate, rounds=1)
    return record(protocol, GRAPH, SecureAggregation(dropouts=dropouts), seed=seed)


def exact(attack: Attack, recorded: Run, observer: Observer) -> float:
    """Share of the nodes of others whose row is exact."""
    view = recorded.view(observer)
    assert attack.unsupported(view) is None
    found = attack.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    right = (found.rows.round() == GRAPH.x[found.nodes]).all(1)
    if found.proven is not None:
        assert bool(right[found.proven].all())
    return float(right.sum()) / (GRAPH.num_nodes - sum(len(c.nodes) for c in view.own))


@pytest.mark.parametrize("hops", [1, 2])
def test_a_server_that_knows_the_graph_takes_totals_apart(hops: int) -> None:
    recorded = run(hops)
    assert not sees_parts(recorded.view(KNOWING))
    for attack in (SubsetSum(), MaximumAPosteriori(), RowSpace()):
        assert exact(attack, recorded, KNOWING) > 0.9
        assert exact(attack, recorded, Observer(parties=(SERVER, 0), topology=True)) > 0.9
    counts = run(hops, "counts")
    assert exact(IntegerPropagation(), counts, KNOWING) > 0.5 and exact(RowSpace(), counts, KNOWING) > 0.5


def test_a_server_without_the_graph_reads_self_terms_out_of_totals() -> None:
    recorded = run()
    assert exact(ServerPartialSums(), recorded, OBSERVERS[0]) > 0.2
    assert "without the edges" in str(SubsetSum().unsupported(recorded.view(OBSERVERS[0])))


def test_pooled_threshold_clients_and_the_server_see_parts_again() -> None:
    assert sees_parts(run().view(Observer(parties=(SERVER, 0, 1, 2, 3))))
    assert not sees_parts(run().view(Observer(parties=(SERVER, 0, 1, 2))))


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("observer", [KNOWING, Observer(parties=(SERVER, 0), topology=True)])
def test_equations_hold_whoever_dropped_out(hops: int, observer: Observer) -> None:
    """Every equation, filled with the true rows, gives the recorded value up to its tolerance, for several draws of
    drop-outs."""
    complete = 0
    for seed in range(4):
        recorded = run(hops, dropouts=0.2, seed=seed)
        assert len(stated(recorded.session, Absent, "NeighborSums").clients) == 1
        equations = neighbor_equations(recorded.view(observer))
        terms = equations.coefficients[:, None] * GRAPH.x.double()[equations.nodes[equations.columns]]
        total = torch.zeros_like(equations.values).index_add_(0, equations.rows, terms)
        whole = equations.hidden == 0
        complete += int(whole.sum())
        assert bool(((total - equations.values).abs() <= equations.tolerance)[whole].all())
        assert bool((total <= equations.values + equations.tolerance).all())
    assert complete > 100


def test_a_client_does_not_guess_who_is_missing() -> None:
    reason = SubsetSum().unsupported(run(dropouts=0.2).view(Observer(parties=(0,))))
    assert reason is not None and "dropped out" in reason


@pytest.mark.parametrize("observer", OBSERVERS)
def test_conformance_and_planted_leaks(observer: Observer) -> None:
    view = run().view(observer)
    for attack in (SubsetSum(), MaximumAPosteriori(), RowSpace(), ServerPartialSums()):
        check_attack(attack, view)
        if attack.unsupported(view) is None:
            planted = attack.plant(view, rng=derive(0, "plant"))
            assert sees_parts(planted.view) is False
            found = attack.run(planted.view, rng=derive(0, "attack"), device=CPU)
            assert isinstance(found, Reconstruction)
            place = torch.full((60,), -1)
            place[found.nodes] = torch.arange(len(found.nodes))
            assert bool((place[planted.nodes] >= 0).all())
            assert torch.equal(found.rows[place[planted.nodes]].round(), planted.rows)


def test_messages_of_noise_show_nothing() -> None:
    recorded = run()
    noise = dataclasses.replace(GRAPH, x=(torch.rand(60, 40, generator=derive(0, "noise")) < 0.08).float())
    other = with_data(recorded, noise)
    found = SubsetSum().run(other.view(KNOWING), rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Reconstruction)
    assert float((found.rows == noise.x[found.nodes]).all(1).float().mean()) < 0.05
