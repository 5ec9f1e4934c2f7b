"""Attacks on latents at their limits: too few latents for message passing, and noise with clipping that leaves little
to read."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import pytest
import torch
from scored_runs import game_of, inferred, self_test

from fglaudit.adversary.bit_recovery import recover_bits
from fglaudit.adversary.clipping import KnownClip
from fglaudit.adversary.message_passing import Measurements
from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks import ATTACKS
from fglaudit.attacks.latents.latent_rounds import LatentRounds
from fglaudit.attacks.latents.optimizer_replay import UserOptimizer
from fglaudit.attacks.latents.weight_moments import weight_moments
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.graph import FederatedGraph, Graph, federate
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.payloads import SERVER
from fglaudit.privacy.mechanism import Distribution
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.rng import derive
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

CPU = torch.device("cpu")
OBSERVER = Observer((SERVER,), topology=True, auxiliary=0.1)
NODES, FEATURES = 120, 200


@cache
def per_user() -> FederatedGraph:
    """One node per client; rows of about eight ones, frequent and rare words."""
    graph = example_graph(nodes=NODES, features=FEATURES, clients=NODES)
    rng = derive(7, "rows")
    chance = torch.rand(FEATURES, generator=rng) ** 4
    x = (torch.rand(NODES, FEATURES, generator=rng) < 8 * chance / chance.sum()).float()
    x[torch.arange(NODES), torch.arange(NODES) % FEATURES] = 1.0
    train = torch.arange(NODES) % 4 == 0
    parts = [torch.tensor([k]) for k in range(NODES)]
    return federate(Graph(x, graph.y, graph.edge_index, graph.name), parts, train, ~train, ~train)


def attack(name: str) -> Attack:
    module, cls = ATTACKS[name].split(":")
    plugin: Attack = getattr(importlib.import_module(module), cls)()
    return plugin


@cache
def noisy(mechanism: Distribution, epsilon: float, clip: float) -> Run:
    protocol = NFedGNN(hidden=16, rounds=12, smoothness=1.0)
    return record(protocol, per_user(), ClippedNoise(mechanism=mechanism, epsilon=epsilon, clip=clip))


def mean_f1(rows: torch.Tensor, truth: torch.Tensor) -> float:
    return float((2 * (rows * truth).sum(1) / (rows.sum(1) + truth.sum(1))).mean().item())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sparse-recovery", {"hidden": 2}),
        ("sparse-recovery", {"hidden": 4}),
        ("weight-replay", {"hidden": 4}),
        ("masked-rounds", {"hidden": 4, "feature_dropout": 0.5}),
        ("masked-rounds", {"hidden": 16, "feature_dropout": 0.5}),
    ],
)
def test_self_test_with_few_latents(name: str, settings: dict[str, Any]) -> None:
    run = record(NFedGNN(rounds=4, smoothness=1.0, **settings), per_user())
    view = run.view(OBSERVER)
    known = torch.zeros(NODES, dtype=torch.bool)
    known[view.auxiliary.nodes] = True
    game = game_of(run, OBSERVER)
    assert torch.equal(game.targets, (~known).nonzero().squeeze(1))
    control = prior_only(view, game.targets, derive(0, "control"))
    assert self_test(attack(name), view, game, control) is None


def test_a_single_one_is_found_and_noise_is_not_taken_for_one() -> None:
    rng = derive(1, "columns")
    measured = Measurements(torch.rand(4, 300, generator=rng) - 0.5)
    truth = torch.eye(300)
    odds = torch.full((300, 300), -5.7)
    found = recover_bits(measured, measured.forward(truth), 0.0, odds, sweeps=5, restarts=0, rng=rng)
    assert bool(found.fits.all()) and torch.equal(found.chance, truth)
    wrong = recover_bits(measured, torch.randn(300, 4, generator=rng), 0.0, odds, sweeps=5, restarts=0, rng=rng)
    assert not bool(wrong.fits.any())


@pytest.mark.parametrize(
    ("mechanism", "epsilon"), [("laplace", 8.0), ("laplace", 500.0), ("laplace", 5000.0), ("gaussian", 500.0)]
)
@pytest.mark.parametrize("clip", [0.5, 4.0])
def test_clipped_noise_leaves_at_least_the_prior(mechanism: str, epsilon: float, clip: float) -> None:
    run = noisy(mechanism, epsilon, clip)
    view = run.view(OBSERVER)
    for name in ("sparse-recovery", "weight-replay"):
        result = attack(name).run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction)
        truth = run.graph.x[result.nodes]
        control = prior_only(view, result.nodes, derive(0, "control"))
        assert mean_f1(result.rows, truth) >= mean_f1(control.rows, truth) - 0.02
    norms = attack("update-l1-norms").run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(norms, Inference)
    sums = run.graph.x[norms.subjects].sum(1)
    guess = inferred("l1-norms").guess(view, norms.subjects, derive(0, "control"))
    error, usual = ((estimate - sums).abs() for estimate in (norms.estimate, guess.estimate))
    assert float(error.mean()) <= 1.02 * float(usual.mean())


@pytest.mark.parametrize("epsilon", [8.0, 500.0, 5000.0])
@pytest.mark.parametrize("clip", [1.0, 4.0])
def test_masked_rounds_under_noise_leave_at_least_the_prior(epsilon: float, clip: float) -> None:
    protocol = NFedGNN(hidden=16, rounds=12, smoothness=1.0, feature_dropout=0.5)
    run = record(protocol, per_user(), ClippedNoise(epsilon=epsilon, clip=clip))
    view = run.view(OBSERVER)
    result = attack("masked-rounds").run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    truth = run.graph.x[result.nodes]
    control = prior_only(view, result.nodes, derive(0, "control"))
    assert mean_f1(result.rows, truth) >= mean_f1(control.rows, truth) - 0.02


def test_weak_noise_still_shows_more_than_the_prior() -> None:
    run = noisy("laplace", 5000.0, 4.0)
    view = run.view(OBSERVER)
    for name in ("sparse-recovery", "weight-replay"):
        result = attack(name).run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction)
        truth = run.graph.x[result.nodes]
        control = prior_only(view, result.nodes, derive(0, "control"))
        assert mean_f1(result.rows, truth) >= mean_f1(control.rows, truth) + 0.1


@pytest.mark.parametrize("order", [1, 2])
def test_clipped_messages_are_told_from_whole_ones(order: int) -> None:
    rng = derive(2, "clip")
    message = torch.randn(2000, 16, generator=rng)
    norm = message.norm(p=order, dim=1, keepdim=True)
    clipping = KnownClip(float(norm.mean()), order)
    cut = message * (clipping.bound / norm).clamp(max=1.0)
    assert torch.equal(clipping.unclipped(cut, 0.0), norm[:, 0] < 0.999 * clipping.bound)
    received = cut + 0.1 * torch.randn(cut.shape, generator=rng)
    assert not bool((clipping.unclipped(received, 0.1) & (norm[:, 0] >= clipping.bound)).float().mean() > 0.005)
    assert clipping.unclipped(received, 0.1).float().mean() > 0.01
    assert torch.allclose(clipping.typical_norm(torch.tensor([16.0]), 16), norm.mean(), rtol=0.05)


def test_nothing_measured_leaves_the_prior_count_and_no_moments() -> None:
    rng = derive(3, "nothing")
    shape = (5, 7, 4)
    rounds = LatentRounds(
        torch.arange(7),
        9 + torch.rand(shape, generator=rng).double(),
        torch.zeros(shape).double(),
        torch.ones(5, 7, dtype=torch.bool),
    )
    moments = weight_moments(rounds, UserOptimizer(True, 0.01, 5e-4), 0.1, 3, 10.0, 0.1, KnownClip(1.0, 1), spread=2.5)
    assert torch.allclose(moments.count, torch.full((7,), 10.0, dtype=torch.double))
    assert torch.allclose(moments.count_std, torch.full((7,), 2.5, dtype=torch.double))
    assert bool((moments.variance > 1e6).all())


def test_weights_that_are_averaged_every_round_are_not_replayed() -> None:
    view = record(CNFGNN(rounds=2), per_user()).view(OBSERVER)
    assert "weights that the server sends" in (attack("weight-replay").unsupported(view) or "")


def test_users_who_are_not_sampled_in_every_round_have_their_own_last_ones() -> None:
    """Two of three rounds count: user 0 sends in all, user 1 in the first two, user 2 never."""
    present = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 0, 0]]).bool()
    latents = torch.tensor([[[1.0], [10.0], [0.0]], [[2.0], [20.0], [0.0]], [[4.0], [0.0], [0.0]]])
    rounds = LatentRounds(torch.arange(3), latents, torch.zeros_like(latents), present)
    mean, count = rounds.last_means(2 / 3)
    assert mean.flatten().tolist() == [3.0, 15.0, 0.0] and count.flatten().tolist() == [2, 2, 0]
    assert rounds.held(slice(0, 3))[..., 0].tolist() == [[1.0, 10.0, 0.0], [2.0, 20.0, 0.0], [4.0, 20.0, 0.0]]
