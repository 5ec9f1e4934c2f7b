"""Single rows from sums that updates show: a sum worked by hand, a graph with few equal degrees, limits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.updates import sum_terms as module
from fglaudit.attacks.updates.sum_terms import bounded_sums, sum_terms
from fglaudit.attacks.updates.update_subset_sum import UpdateSubsetSum
from fglaudit.defenses.training.dp_fedavg import DpFedAvg
from fglaudit.finding import Finding
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Defense
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer

ONE_STEP = {"hops": 1, "hidden": 64, "rounds": 1, "local_steps": 1, "dropout": 0.0}


def graph() -> FederatedGraph:
    """Return a graph of few training nodes per client and words enough for every row to have some of its own."""
    made = example_graph(nodes=48, features=160, clients=4)
    few = tuple(mask & (torch.arange(len(mask)) % 3 == 0) for mask in made.train)
    return replace(made, x=(torch.rand(48, 160, generator=derive(1, "rows")) < 0.06).float(), train=few)


def finding(protocol: FedGCN | FedGAT, data: FederatedGraph, defense: Defense | None = None) -> Finding:
    run = record(protocol, data, defense)
    scorer = Scorer(run.truth)
    specs = [ObserverSpec(("server",))]
    [output] = run_attacks(run.recording, specs, [UpdateSubsetSum()], nothing_to_ask=scorer.nothing_to_ask)
    return scorer.measure(output).finding


@pytest.mark.parametrize("factor", [1.0, 0.037])
def test_a_sum_worked_by_hand(factor: float) -> None:
    """Neighbours with D = 3, 5 and 7 and the words {0, 1}, {1, 2, 3} and {3, 4, 5}; word 6 is nobody's."""
    bits = torch.zeros(3, 7)
    for row, words in enumerate([[0, 1], [1, 2, 3], [3, 4, 5]]):
        bits[row, words] = 1
    terms = sum_terms(factor * (torch.tensor([3.0, 5.0, 7.0]).rsqrt() @ bits))
    assert terms.most.tolist() == [1, 1, 1]
    assert torch.equal(terms.bits.flip(0).float(), bits)


def test_neighbors_of_equal_degree_come_out_together() -> None:
    bits = torch.zeros(3, 9)
    for row, words in enumerate([[0, 1, 2], [2, 3, 4], [5, 6, 7]]):
        bits[row, words] = 1
    terms = sum_terms(torch.tensor([3.0, 3.0, 7.0]).rsqrt() @ bits)
    assert sorted(terms.most.tolist()) == [1, 2]
    assert torch.equal(terms.bits[terms.most == 1][0].float(), bits[2])
    assert torch.equal(terms.bits[terms.most == 2][0].float(), bits[:2].amax(0))


def test_a_sum_of_too_many_different_values_is_left_alone() -> None:
    """Every value of a sum over several hops is its own: nothing shows a single row, and searching took minutes."""
    assert not len(sum_terms(torch.rand(2000, generator=derive(1, "dense"))).most)


def test_an_empty_sum_has_no_terms() -> None:
    assert sum_terms(torch.zeros(5)).bits.shape == (0, 5)


def test_rows_whose_degree_no_other_in_the_sum_has_are_found() -> None:
    """Of the training nodes' neighbourhoods, those rows that can be told apart at all; the sums themselves are none."""
    data = graph()
    found = finding(FedGCN(**ONE_STEP), data)  # type: ignore[arg-type]
    degrees, alone = data.degrees(), set()
    for nodes, train in zip(data.clients, data.train, strict=True):
        for i in nodes[train].tolist():
            around = torch.cat([data.edge_index[1][data.edge_index[0] == i], torch.tensor([i])])
            _, which, count = torch.unique(degrees[around], return_inverse=True, return_counts=True)
            alone |= set(around[count[which] == 1].tolist())
    assert found.adapted == "yes" and found.control_exact_rate == 0
    assert found.value is not None and found.value * len(data.x) >= 0.7 * len(alone) > 5


def test_client_level_privacy_leaves_nothing() -> None:
    strong = DpFedAvg(epsilon=4, delta=1e-3, clip=0.5, trust="local")
    found = finding(FedGCN(**{**ONE_STEP, "rounds": 2}), graph(), strong)  # type: ignore[arg-type]
    assert (found.exact_rate, found.advantage, found.adapted) == (0, 0, "yes")


def test_refusals_name_what_is_in_the_way() -> None:
    cases = (
        ("counts have no weights", FedGCN(**ONE_STEP, aggregate="counts"), graph()),  # type: ignore[arg-type]
        ("smoothed over the graph", FedGCN(**ONE_STEP, smoothing_hops=2), graph()),  # type: ignore[arg-type]
        ("not binary", FedGCN(**ONE_STEP), replace(graph(), features=FeatureKind.SCALED_BINARY)),  # type: ignore[arg-type]
        ("its network is a GCN", FedGAT(rounds=1), graph()),
        ("3 features are too few", FedGCN(**ONE_STEP), example_graph(nodes=24, features=3, clients=2)),  # type: ignore[arg-type]
        ("step with adam", FedGCN(**ONE_STEP, optimizer="adam"), graph()),  # type: ignore[arg-type]
    )
    for words, protocol, data in cases:
        assert words in str(UpdateSubsetSum().unsupported(record(protocol, data).view(Observer((SERVER,)))))


@pytest.mark.parametrize("features", [4, 6, 12])
def test_graphs_of_few_features_break_no_self_test(features: int) -> None:
    """Rows of so few words are equal at many clients, and each is found once."""
    data = example_graph(nodes=60, features=features, clients=10)
    view = record(FedGCN(**ONE_STEP), data).view(Observer((SERVER,)))  # type: ignore[arg-type]
    assert planted_flaw(UpdateSubsetSum(), view, derive(1, "few"), torch.device("cpu")) is None


def test_all_bounded_sums_are_found_with_what_they_are_made_of() -> None:
    parts, most, limit = np.array([0.2, 0.31, 0.5]), np.array([2, 1, 3]), 1.05
    sums = bounded_sums(parts, most, limit)
    wanted = [c for c in itertools.product(range(3), range(2), range(4)) if float(np.dot(c, parts)) <= limit]
    found = sums.counts(np.arange(len(sums.totals)), 3)
    assert sorted(map(tuple, found.tolist())) == sorted(wanted)
    assert np.allclose(found @ parts, sums.totals)


@pytest.mark.parametrize("most_sums", [3, 40, 200, 900, 4000])
def test_of_too_many_sums_those_of_few_terms_are_kept(most_sums: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of up to as many terms as the bound allows, 6 at most unless it allows all, and 2 whatever it allows."""
    monkeypatch.setattr(module, "_MOST_SUMS", most_sums)
    parts, most = np.array([0.2, 0.21, 0.3, 0.34]), np.array([3, 2, 3, 3])
    terms = np.array([sum(c) for c in itertools.product(*(range(m + 1) for m in most))])
    sums = module.bounded_sums(parts, most, 99.0)
    allowed = [t for t in (int(most.sum()), 6, 5, 4, 3) if (terms <= t).sum() <= most_sums]
    assert len(sums.totals) == (terms <= (allowed or [2])[0]).sum()
    assert sums.counts(np.arange(len(sums.totals)), 4).sum(1).max() == (allowed or [2])[0]
