"""Client similarity: which pairs are alike, what a guess by sizes reaches, an interval over clients in pairs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fglaudit.attacks.updates.update_similarity import UpdateSimilarity
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Inference, Planted
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.quantities import Attempt, ObserverTruth
from fglaudit.quantities.clients.client_similarity import ClientSimilarity, PairQuestion, alike
from fglaudit.rng import derive
from fglaudit.scoring.metrics import clusters_of, metric_interval
from fglaudit.testing import example_graph, record
from fglaudit.view import Auxiliary, Observer

KIND = ClientSimilarity()
SERVER_ONLY = Observer(parties=(SERVER,))


def held(shares: list[list[int]]) -> FederatedGraph:
    """Return a graph whose client k holds ``shares[k][c]`` nodes of class c."""
    counts = torch.tensor(shares)
    y = torch.cat([torch.arange(counts.shape[1]).repeat_interleave(row) for row in counts])
    owned = torch.split(torch.arange(len(y)), counts.sum(1).tolist())
    graph = example_graph(nodes=len(y), clients=len(shares), classes=counts.shape[1])
    return dataclasses.replace(graph, y=y, clients=tuple(owned))


def ask(graph: FederatedGraph, observer: Observer = SERVER_ONLY, *, pooled: bool = False) -> PairQuestion | str:
    return KIND.ask(ObserverTruth(graph, FedGCN(hops=0), observer, Auxiliary.empty(24), {}, pooled))


def asked(graph: FederatedGraph, observer: Observer = SERVER_ONLY) -> PairQuestion:
    found = ask(graph, observer)
    assert isinstance(found, PairQuestion)
    return found


def test_pairs_nearer_than_the_middle_one_are_alike() -> None:
    """Total variation by hand: 0.1 of clients 0 and 1, 0.2 of 2 and 3, at least 0.6 of all others."""
    question = asked(held([[9, 1], [8, 2], [2, 8], [0, 10]]))
    near = {tuple(pair) for pair, true in zip(question.subjects.tolist(), question.truth.tolist(), strict=True) if true}
    assert {(0, 1), (2, 3)} <= near and len(question.subjects) == 6 and len(near) == 3
    assert near - {(0, 1), (2, 3)} == {(1, 2)}, "the third of six is as far apart as 0.6"


def test_only_clients_that_do_not_observe_are_asked_about() -> None:
    question = asked(held([[9, 1], [8, 2], [2, 8], [0, 10]]), Observer(parties=(SERVER, 1)))
    assert question.subjects.tolist() == [[0, 2], [0, 3], [2, 3]] and question.truth.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("shares", "parties", "why"),
    [
        ([[9, 1], [8, 2], [2, 8]], (SERVER, 0), "fewer than three"),
        ([[3, 3], [2, 2], [5, 5]], (SERVER,), "equally far apart"),
        ([[1, 1]] * 201, (SERVER,), "at most 200"),
    ],
)
def test_nothing_is_asked_where_no_pair_stands_out(shares: list[list[int]], parties: tuple[int, ...], why: str) -> None:
    assert why in str(ask(held(shares), Observer(parties=parties)))


def test_rounding_makes_no_pair_nearer() -> None:
    thirds = torch.tensor([[1, 1, 1], [7, 7, 7], [49, 49, 49], [3, 3, 3]]).double()
    assert not bool(alike(thirds, torch.combinations(torch.arange(4))).any())


@pytest.mark.parametrize(
    ("shares", "beats_a_coin"),
    [
        ([[8, 2], [9, 1], [1, 29], [2, 28]], True),  # alike and of one size
        ([[8, 2], [27, 3], [1, 9], [2, 28]], False),  # alike and of different sizes
    ],
)
def test_who_knows_sizes_is_the_control_where_sizes_tell(shares: list[list[int]], beats_a_coin: bool) -> None:
    question = asked(held(shares))
    view = record(FedGCN(hops=0, rounds=1)).view(SERVER_ONLY)
    guess = KIND.guess(view, question.subjects, derive(0, "control"))
    right = Inference(KIND.name, question.subjects, question.truth)
    found = KIND.compare(UpdateSimilarity(), [Attempt(view, question, right, guess)])
    assert float(found.values.mean()) == 1
    assert (float(found.controls.mean()) > 0.6) is beats_a_coin and float(found.controls.mean()) >= 0.5


def test_a_pair_has_no_order_and_what_is_left_open_does_not_follow_the_control() -> None:
    question = asked(held([[8, 2], [9, 1], [1, 29], [2, 28]]))
    guess = KIND.guess(record(FedGCN(hops=0, rounds=1)).view(SERVER_ONLY), question.subjects, derive(0, "control"))
    estimate = torch.randn(6, generator=derive(0, "estimate")).double()
    straight = Inference(KIND.name, question.subjects, estimate)
    turned = dataclasses.replace(straight, subjects=question.subjects.flip(1))
    assert torch.equal(KIND.estimated(question, turned, guess), estimate)


def test_where_one_party_observes_all_pairs_a_pair_counts_once() -> None:
    question = ask(held([[9, 1], [8, 2], [2, 8], [0, 10], [5, 5]]), Observer(parties=(4,)), pooled=True)
    assert isinstance(question, PairQuestion)
    scores = KIND.judge(question, torch.randn(6, generator=derive(0, "estimate")))
    assert scores.negatives is not None and len(scores.negatives.values) == int((question.truth == 0).sum())


def test_an_interval_covers_though_every_client_is_in_many_pairs() -> None:
    """Marks that have nothing to do with labels: pairs of one client share its luck. Pairs that count for one of their
    clients alone make intervals that are too narrow."""
    rng, clients, runs = derive(0, "coverage"), 12, 150
    view = record(FedGCN(hops=0, rounds=1)).view(SERVER_ONLY)
    pairs = torch.combinations(torch.arange(clients))
    covered = {"ours": 0, "one client alone": 0}
    for _ in range(runs):
        counts = (200 * torch.rand(clients, 7, generator=rng).double().pow(3) + 1).round()
        question = KIND.planted(Planted(view, alike(counts, pairs).double(), pairs))
        marks = torch.randn(clients, 7, generator=rng).double()
        estimate = -torch.cdist(marks, marks)[pairs[:, 0], pairs[:, 1]]
        for name, judge in (("ours", KIND.judge), ("one client alone", super(ClientSimilarity, KIND).judge)):
            found, constant = judge(question, estimate), judge(question, torch.zeros(len(pairs)))
            assert found.negatives is not None and constant.negatives is not None
            both = found.negatives, constant.negatives
            interval = metric_interval("auc", clusters_of("auc", found.clusters, found.values, constant.values, both))
            assert interval.low is not None and interval.high is not None
            covered[name] += interval.low <= 0 <= interval.high
    assert covered["ours"] >= 0.95 * runs > covered["one client alone"]
