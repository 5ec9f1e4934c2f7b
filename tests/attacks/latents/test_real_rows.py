"""Real-valued rows from first latents, for a server that knows no row."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scored_runs import finding_of
from torch import Tensor

from fglaudit.attacks.latents.latent_labels import LatentLabels
from fglaudit.attacks.latents.matching_pursuit import matching_pursuit
from fglaudit.attacks.latents.optimizer_replay import UserOptimizer
from fglaudit.attacks.latents.sparse_recovery import SparseRecovery
from fglaudit.attacks.latents.weight_difference import UserStep, WeightDifference, sign_bounds
from fglaudit.finding import Finding, Status
from fglaudit.graph import FeatureKind
from fglaudit.observers import ObserverSpec
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record

SERVER = ObserverSpec(("server",), topology=True, initial_weights=True)


def attacked(rows: Tensor, hidden: int) -> Finding:
    graph = example_graph(nodes=len(rows), features=rows.shape[1], clients=len(rows))
    graph = dataclasses.replace(graph, x=rows, features=FeatureKind.REAL)
    return finding_of(record(NFedGNN(rounds=1, hidden=hidden), graph), SparseRecovery(), SERVER)


def drawn(nodes: int, features: int, entries: int) -> Tensor:
    rng = derive(0, "rows")
    place = torch.rand(nodes, features, generator=rng).topk(entries, dim=1).indices
    return torch.zeros(nodes, features).scatter_(1, place, torch.randn(nodes, entries, generator=rng))


def test_sparse_rows_are_found_without_a_known_one() -> None:
    """The linear estimate had none; the self-test then called the attack broken on every real-valued graph."""
    finding = attacked(drawn(30, 60, 3), hidden=24)
    assert finding.status is Status.OK
    assert finding.exact_rate is not None and finding.exact_rate > 0.9


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_of_one_sign_are_estimated_around_their_common_entry(sign: int) -> None:
    """The estimate around zero had cosine 0.52 where a row of ones alone has 0.79."""
    rows = sign * torch.randn(60, 24, generator=derive(0, "rows")).abs()
    finding = attacked(rows, hidden=8)
    assert finding.status is Status.OK
    assert finding.value is not None and finding.control is not None
    assert finding.value > finding.control + 0.03


def test_matching_pursuit_finds_the_rows_it_calls_solved() -> None:
    matrix = torch.randn(16, 40, generator=derive(0, "matrix"))
    rows = torch.cat([drawn(50, 40, 2), torch.zeros(1, 40), drawn(20, 40, 16)])
    found, solved = matching_pursuit(matrix, rows @ matrix.T)
    assert int(solved[:51].sum()) >= 45 and bool(solved[50]) and not bool(solved[51:].any())
    torch.testing.assert_close(found[solved], rows[solved], rtol=1e-4, atol=1e-5)
    assert not bool(found[~solved].any())


@pytest.mark.parametrize("entries", [3, 24])
def test_signs_of_adams_steps_show_real_rows(entries: int) -> None:
    """Steps of one size hide magnitudes, and signs were not read: the cosine was 0.04 to 0.11."""
    graph = example_graph(nodes=60, features=24, clients=60)
    graph = dataclasses.replace(graph, x=drawn(60, 24, entries), features=FeatureKind.REAL)
    finding = finding_of(record(CNFGNN(rounds=2, hidden=16), graph), WeightDifference(), SERVER)
    assert finding.status is Status.OK
    assert finding.value is not None and finding.value > 0.55


def test_bounds_from_signs_hold_the_entries() -> None:
    rng = derive(0, "bounds")
    before, slope = torch.randn(1, 5, 12, generator=rng).double(), torch.randn(3, 12, generator=rng).double()
    rows = torch.randn(3, 5, generator=rng).double()
    rows[:, 0] = 0
    optimizer = UserOptimizer(adam=True, learning_rate=0.1, weight_decay=0.01)
    after = before - 0.1 * (rows[..., None] * slope[:, None] + 0.01 * before).sign()
    low, high = sign_bounds(UserStep(before, after, slope, optimizer, False, 0.0))
    assert bool(((low <= rows) & (rows <= high)).all())
    assert bool((low[:, 0] < 0).all()) and bool((high[:, 0] > 0).all())
    assert bool(((low > 0) == (rows > 0))[:, 1:].float().mean() > 0.8)


@pytest.mark.parametrize("seed", range(3))
def test_first_latents_show_classes_that_only_those_who_train_have_labels_of(seed: int) -> None:
    """Later latents of users who train follow their labels: what they teach named 69 to 92 % of the others."""
    graph = example_graph(nodes=60, features=24, clients=60, seed=seed)
    kinds = torch.randn(3, 24, generator=derive(seed, "kinds"))
    graph = dataclasses.replace(graph, x=kinds[graph.y], features=FeatureKind.REAL)
    finding = finding_of(record(NFedGNN(rounds=6, hidden=8), graph), LatentLabels(), SERVER)
    assert finding.status is Status.OK and finding.value == 1
