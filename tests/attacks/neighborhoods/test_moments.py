"""Attacks that read little of FedGAT's messages: second moments of K2 alone, and power moments along one direction."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from masked_views import masked_view, unit_rows
from neighbor_sum_views import federated, random_federated
from scored_runs import self_test

from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks.neighborhoods import gram_peeling
from fglaudit.attacks.neighborhoods.gram_peeling import GramPeeling
from fglaudit.attacks.neighborhoods.power_moments import PowerMoments
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.payloads import MaskedMatrices, MessageBatch
from fglaudit.quantities.rows.game import Game
from fglaudit.quantities.rows.metrics import matched_exact
from fglaudit.rng import derive
from fglaudit.scoring.selftest import NoiseMessages
from fglaudit.structure import Attention, Structure
from fglaudit.testing import check_attack
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
CLIENT = Observer((0,))


def rebuild(attack: Attack, view: View) -> Reconstruction:
    assert attack.unsupported(view) is None
    result = attack.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


def matched(result: Reconstruction, view: View, graph: FederatedGraph) -> float:
    remote = torch.unique(torch.cat([c.remote_nodes for c in view.own]))
    return matched_exact(result.rows, graph.x[remote], graph.features) / len(remote)


def false_proofs(result: Reconstruction, graph: FederatedGraph) -> int:
    assert result.proven is not None
    wrong = (result.rows - graph.x[result.nodes]).abs().amax(1) > 1e-3
    return int((result.proven & wrong).sum())


@pytest.mark.parametrize("kind", [FeatureKind.BINARY, FeatureKind.SCALED_BINARY])
def test_second_moments_of_k2_give_discrete_rows(kind: FeatureKind) -> None:
    for seed in range(3):
        graph = random_federated(seed, features=60)
        if kind is FeatureKind.SCALED_BINARY:
            x = graph.x / graph.x.sum(1, keepdim=True).clamp(min=1)
            graph = dataclasses.replace(graph, x=x, features=kind)
        view = masked_view(graph, CLIENT)
        result = rebuild(GramPeeling(), view)
        assert matched(result, view, graph) >= 0.95
        assert false_proofs(result, graph) == 0
        assert result.proven is not None and bool(result.proven.any())


def test_nothing_but_k2_is_read() -> None:
    """M1, M2 and K1 replaced by zeros: the same rows."""
    graph = random_federated(0, features=60)
    view = masked_view(graph, CLIENT)
    cut: list[MessageBatch] = []
    for batch in view.messages.of(MaskedMatrices):
        assert isinstance(batch.payload, MaskedMatrices)
        fields = batch.payload.tensors()
        zeros = {name: torch.zeros_like(fields[name]) for name in ("m1", "m2", "k1")}
        cut.append(dataclasses.replace(batch, payload=MaskedMatrices(**(fields | zeros))))
    first, second = rebuild(GramPeeling(), view), rebuild(GramPeeling(), masked_view(graph, CLIENT, batches=cut))
    assert torch.equal(first.rows, second.rows) and torch.equal(first.nodes, second.nodes)


def test_pure_features_by_hand() -> None:
    """Node 0 is known (feature 0). Its neighbours have {1, 2}, {2, 3} and {1, 2}: features 1 and 3 are pure, 1 counts
    twice."""
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])
    graph = federated(x, [(0, 1), (0, 2), (0, 3), (0, 4)], [[0], [1, 2, 3, 4]])
    result = rebuild(GramPeeling(), masked_view(graph, CLIENT))
    assert sorted(result.rows.tolist()) == sorted(x[1:].tolist())


def test_rows_without_a_pure_feature_stay_hidden() -> None:
    """{1, 2}, {2, 3} and {1, 3}: every feature belongs to two rows with different others."""
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 0, 1]])
    graph = federated(x, [(0, 1), (0, 2), (0, 3)], [[0], [1, 2, 3]])
    result = rebuild(GramPeeling(), masked_view(graph, CLIENT))
    assert len(result.rows) == 0


def test_the_last_real_valued_row_is_a_difference() -> None:
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)) / 4
    graph = dataclasses.replace(federated(x, [(0, 1), (0, 2), (1, 2)], [[0, 1], [2]]), features=FeatureKind.REAL)
    result = rebuild(GramPeeling(), masked_view(graph, CLIENT))
    assert result.nodes.tolist() == [2]
    assert torch.allclose(result.rows, unit_rows(x)[2:], atol=1e-5)


def test_large_neighbourhoods_without_pure_rows_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same results as where every Gram matrix is made whole: of noise, none of which is, and of real messages."""
    graph = random_federated(0, features=300)
    view = masked_view(graph, CLIENT)
    blind = dataclasses.replace(view, messages=NoiseMessages(view.messages, 0))
    passed: list[bool] = []
    nothing_pure = gram_peeling._nothing_pure

    def noted(*arguments: torch.Tensor) -> bool:
        passed.append(nothing_pure(*arguments))
        return passed[-1]

    monkeypatch.setattr(gram_peeling, "_nothing_pure", noted)
    quick = [rebuild(GramPeeling(), each) for each in (view, blind)]
    assert True in passed
    monkeypatch.setattr(gram_peeling, "_nothing_pure", lambda *_: False)
    for fast, whole in zip(quick, [rebuild(GramPeeling(), each) for each in (view, blind)], strict=True):
        assert torch.equal(fast.rows, whole.rows) and torch.equal(fast.nodes, whole.nodes)


@pytest.mark.parametrize("vector", [False, True])
def test_power_moments_of_one_direction(vector: bool) -> None:
    for seed in range(3):
        graph = random_federated(seed, features=60)
        view = masked_view(graph, CLIENT, vector=vector)
        result = rebuild(PowerMoments(), view)
        assert matched(result, view, graph) >= 0.9
        assert false_proofs(result, graph) == 0


def test_power_moments_split_equal_rows_and_zeros() -> None:
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])
    graph = federated(x, [(0, 1), (0, 2), (0, 3), (0, 4)], [[0], [1, 2, 3, 4]])
    result = rebuild(PowerMoments(), masked_view(graph, CLIENT))
    assert sorted(result.rows.tolist()) == sorted(x[1:].tolist())


def test_too_few_orders_for_a_neighbourhood() -> None:
    """Three distinct rows need more than two orders."""
    x = torch.eye(4)
    graph = federated(x, [(0, 1), (0, 2), (0, 3)], [[0], [1, 2, 3]])
    view = masked_view(graph, CLIENT)
    for degree, share in ((2, 0.0), (8, 1.0)):
        public = dataclasses.replace(view.public, structure=Structure((Attention(degree, 2.0),)))
        cut = dataclasses.replace(view, public=public)
        assert (matched(rebuild(PowerMoments(), cut), cut, graph) == 1.0) == (share == 1.0)


@pytest.mark.parametrize("attack", [GramPeeling(), PowerMoments()])
def test_self_test_passes_and_noise_is_not_modelled(attack: Attack) -> None:
    graph = random_federated(2)
    view = masked_view(graph, CLIENT)
    targets = torch.unique(torch.cat([c.remote_nodes for c in view.own]))
    control = prior_only(view, targets, derive(0, "control"))
    game = Game.about(targets, graph.x[targets], graph.features)
    assert self_test(attack, view, game, control) is None
    check_attack(attack, view)
    noisy = masked_view(graph, CLIENT, std=0.1)
    assert attack.unsupported(noisy) is None
    assert not any(attack.models(fact) for fact in noisy.public.facts)
    result = rebuild(attack, noisy)
    assert not result.rows.isnan().any()
    assert result.proven is not None and not bool(result.proven.any())
