"""Real-valued rows read off parts: degrees by hand, what is exact without an edge, noise, and totals alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scored_runs import finding_of

from fglaudit.attacks.sums.degree_ratios import Ratios, least_degrees, lowest_terms, parallel_parts
from fglaudit.attacks.sums.lone_parts import LoneParts
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.finding import Status
from fglaudit.graph import FeatureKind, FederatedGraph, canonical_edges
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, check_attack, example_graph, record
from fglaudit.view import Observer

SERVER_ALONE = ObserverSpec(("server",))


def graph(*, nodes: int = 120, clients: int = 10) -> FederatedGraph:
    """Return a graph of real-valued rows, sparse as those of citations."""
    made, rng = example_graph(nodes=nodes, features=30, clients=clients), derive(0, "real")
    pairs = torch.randint(nodes, (2, 2 * nodes), generator=rng)
    return replace(
        made,
        x=torch.randn(nodes, 30, generator=rng),
        edge_index=canonical_edges(pairs, nodes),
        features=FeatureKind.REAL,
    )


def lone(graph: FederatedGraph) -> torch.Tensor:
    """Return which nodes have no neighbour at their own client [N]."""
    owner, (row, column) = graph.owner(), graph.edge_index
    return torch.bincount(row, (owner[row] == owner[column]).double(), minlength=graph.num_nodes) == 0


def test_degrees_worked_by_hand() -> None:
    """Client 0 holds node 0 (degree 3: D = 4), client 1 node 1 (D = 6); they are neighbours, and node 2 is none."""
    x = torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0], [4.0, 1.0, 1.0]])
    parts = torch.stack([x[0] / 4, x[0] / 24**0.5, x[1] / 6, x[1] / 24**0.5, x[2] / 2])
    parties = torch.tensor([0, 0, 1, 1, 1])
    own = torch.tensor([True, False, True, False, True])
    part, partner, ratio = parallel_parts(parties, own, parts, derive(0, "direction"))
    assert sorted(zip(part.tolist(), partner.tolist(), strict=True)) == [(1, 0), (3, 2)]
    above, below = lowest_terms(ratio**2)
    found = dict(zip(part.tolist(), zip(above.tolist(), below.tolist(), strict=True), strict=True))
    assert found == {1: (2, 3), 3: (3, 2)}
    node = torch.tensor([1 if index == 1 else 0 for index in part.tolist()])
    ratios = Ratios(node, 1 - node, above, below)
    assert least_degrees(ratios, torch.tensor([2, 2, 2]), 20).tolist() == [2, 3, 2]
    assert least_degrees(ratios, torch.tensor([4, 2, 2]), 20).tolist() == [4, 6, 2]
    assert least_degrees(ratios, torch.tensor([19, 2, 2]), 20).tolist() == [20, 2, 2]  # 30 is beyond 20


def test_quotients_come_in_lowest_terms() -> None:
    numbers = torch.arange(1, 180).double()
    quotients = numbers[:, None] / numbers
    above, below = lowest_terms(quotients.flatten() * (1 + 1e-7))
    common = torch.gcd(numbers.long()[:, None], numbers.long())
    assert torch.equal(above.view(179, 179), numbers.long()[:, None] // common)
    assert torch.equal(below.view(179, 179), numbers.long() // common)


@pytest.mark.parametrize("aggregate", ["normalised", "counts"])
def test_rows_of_lone_nodes_are_exact_without_an_edge(aggregate: Weights) -> None:
    made = graph()
    run = record(FedGCN(hops=1, aggregate=aggregate, rounds=1), made)
    found = finding_of(run, LoneParts(), SERVER_ALONE)
    share = float(lone(made).double().mean())
    assert share > 0.5 and found.status is Status.OK and found.metric == "cosine"
    assert found.exact_rate is not None and found.exact_rate >= (0.9 if aggregate == "normalised" else 1) * share - 1e-6
    assert found.value is not None and found.value > 0.85
    wire = finding_of(run, LoneParts(), ObserverSpec(("wire",)))
    assert wire.exact_rate == found.exact_rate


def test_a_server_that_knows_degrees_needs_no_ratios() -> None:
    made = graph()
    run = record(FedGCN(hops=1, rounds=1), made)
    found = finding_of(run, LoneParts(), ObserverSpec(("server",), degrees=True))
    assert found.exact_rate == pytest.approx(float(lone(made).double().mean()))


def test_noise_and_totals_leave_less() -> None:
    made = graph()
    clear, noisy, masked = (
        finding_of(run, LoneParts(), SERVER_ALONE)
        for run in (
            record(FedGCN(hops=1, rounds=1), made),
            record(FedGCN(hops=1, rounds=1), made, Gaussian(epsilon=8.0)),
            record(FedGCN(hops=1, rounds=1), made, SecureAggregation()),
        )
    )
    assert noisy.adapted == masked.adapted == "yes"
    assert noisy.exact_rate == 0 and (masked.exact_rate or 0) < 0.1  # alone in the whole graph
    assert (clear.value or 0) > (masked.value or 0) > 0.3 > 0.15 > (noisy.value or 1)


@pytest.mark.parametrize("observer", [Observer(parties=(-1,)), Observer(parties=(-1, 0)), Observer(wire=True)])
def test_conformance(observer: Observer) -> None:
    run: Run = record(FedGCN(hops=1, rounds=1), graph(nodes=60, clients=5))
    view = run.view(observer)
    check_attack(LoneParts(), view)
    assert LoneParts().unsupported(run.view(Observer(parties=(0,)))) is not None
    found = LoneParts().run(view, rng=derive(0, "attack"), device=CPU)
    assert found.rows.shape == (len(found.nodes), 30)
