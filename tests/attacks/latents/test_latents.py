"""Attacks on nFedGNN's and CNFGNN's messages, recorded from real training on small graphs and simulated by hand."""

from __future__ import annotations

import dataclasses
import importlib
from functools import cache
from typing import Any

import pytest
import torch
from scored_runs import game_of, inferred, self_test, truth_about
from torch import Tensor

from fglaudit.adversary.bit_recovery import determined, fitting
from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.message_passing import Measurements, count_shift
from fglaudit.adversary.priors.prior_only import prior_only
from fglaudit.attacks import ATTACKS
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer
from fglaudit.attacks.latents.weight_moments import legendre
from fglaudit.facts import Additive, Field
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FeatureKind, FederatedGraph, Graph, federate
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.payloads import SERVER, LatentGradients
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.protocols.nfedgnn.nfedgnn import NFedGNN
from fglaudit.quantities import Question
from fglaudit.rng import derive
from fglaudit.testing import Run, check_attack, example_graph, record
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
OBSERVER = Observer((SERVER,), topology=True, auxiliary=0.1)


def per_user(kind: FeatureKind = FeatureKind.BINARY, *, nodes: int = 60, features: int = 120) -> FederatedGraph:
    """A graph with one node per client and rows of about six non-zero entries; node 3 has the row of node 4."""
    graph = example_graph(nodes=nodes, features=features, clients=nodes)
    rng = derive(5, "rows")
    x = (torch.rand(nodes, features, generator=rng) < 6 / features).float()
    x[torch.arange(nodes), torch.arange(nodes) % features] = 1.0
    x[3] = x[4]
    if kind is FeatureKind.SCALED_BINARY:
        x = x / x.sum(1, keepdim=True)
    if kind is FeatureKind.REAL:
        x = x * (0.5 + torch.rand(x.shape, generator=rng))
    parts = [torch.tensor([k]) for k in range(nodes)]
    train = torch.arange(nodes) % 4 == 0
    return federate(Graph(x, graph.y, graph.edge_index, graph.name), parts, train, ~train, ~train)


def attack(name: str, **options: object) -> Attack:
    module, cls = ATTACKS[name].split(":")
    plugin: Attack = getattr(importlib.import_module(module), cls)(**options)
    return plugin


@cache
def recorded(kind: FeatureKind = FeatureKind.BINARY, **settings: object) -> Run:
    return record(NFedGNN(**settings), per_user(kind))  # type: ignore[arg-type]


WIDE: dict[str, Any] = {"hidden": 48, "rounds": 2, "smoothness": 1.0}


def rebuild(name: str, run: Run, observer: Observer = OBSERVER) -> tuple[Reconstruction, Tensor]:
    view = run.view(observer)
    plugin = attack(name)
    assert plugin.unsupported(view) is None
    result = plugin.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    truth = run.graph.x[result.nodes]
    exact = (result.rows - truth).abs().amax(1) <= 1e-3 * truth.abs().amax(1)
    assert result.proven is not None and not bool((result.proven & ~exact).any())
    return result, exact


@pytest.mark.parametrize("kind", list(FeatureKind))
def test_first_latents_give_the_rows(kind: FeatureKind) -> None:
    _, exact = rebuild("sparse-recovery", recorded(kind, **WIDE))
    assert exact.float().mean() >= 0.9


def test_first_latents_give_rows_without_any_known_row() -> None:
    result, exact = rebuild("sparse-recovery", recorded(**WIDE), Observer((SERVER,)))
    assert len(result.nodes) == 60
    assert exact.float().mean() >= 0.9


def test_private_weights_cannot_be_inverted() -> None:
    view = recorded(initial_weights="private", **WIDE).view(OBSERVER)
    for name in ("sparse-recovery", "weight-replay"):
        assert "private" in (attack(name).unsupported(view) or "")


def test_noise_that_is_known_enters_the_measurement_model() -> None:
    run = recorded(**WIDE)
    view = run.view(OBSERVER)
    quiet = attack("sparse-recovery").run(view, rng=derive(0, "attack"), device=CPU)
    noise = Additive(Field("Latents", direction="up"), "laplace", 1e6)
    told = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=(noise,)))
    drowned = attack("sparse-recovery").run(told, rng=derive(0, "attack"), device=CPU)
    assert isinstance(quiet, Reconstruction) and isinstance(drowned, Reconstruction) and drowned.proven is not None
    truth = run.graph.x[drowned.nodes]
    assert not bool(drowned.proven.any())
    # Told that the latents are noise, it falls back to its prior and so differs from the exact rows.
    assert (
        float((drowned.rows == truth).all(1).float().mean()) < 0.2 < float((quiet.rows == truth).all(1).float().mean())
    )


def test_a_second_round_of_adam_raises_what_few_latents_show() -> None:
    run = recorded(hidden=8, rounds=30, smoothness=0.1)
    _, first = rebuild("sparse-recovery", run)
    _, all_rounds = rebuild("weight-replay", run)
    assert all_rounds.float().mean() >= first.float().mean() + 0.2


def test_dropped_features_come_back_in_other_rounds() -> None:
    run = recorded(hidden=48, rounds=16, smoothness=1.0, feature_dropout=0.5)
    _, exact = rebuild("masked-rounds", run)
    assert exact.float().mean() >= 0.95
    _, first = rebuild("sparse-recovery", run)
    assert first.float().mean() < 0.2


@pytest.mark.parametrize(("optimizer", "name"), [("sgd", "update-squared-norms"), ("adam", "update-l1-norms")])
@pytest.mark.parametrize("weights", ["broadcast", "private"])
def test_norms_are_read_off_the_movement(optimizer: str, name: str, weights: str) -> None:
    run = recorded(optimizer=optimizer, hidden=16, rounds=6, smoothness=10.0, initial_weights=weights)
    result = attack(name).run(run.view(OBSERVER), rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Inference)
    truth = run.graph.x[result.subjects].sum(1)
    # A user far from labels and without neighbours gets hardly any gradient, and moves by its decay alone.
    assert ((result.estimate - truth).abs() <= 0.01 * truth).float().mean() >= 0.85


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", [FeatureKind.BINARY, FeatureKind.REAL])
def test_uploaded_weights_give_the_rows_of_users_with_gradients(optimizer: Optimizer, kind: FeatureKind) -> None:
    run = record(CNFGNN(optimizer=optimizer, rounds=2, learning_rate=0.1), per_user(kind))
    result, exact = rebuild("weight-difference", run)
    reached = torch.zeros(run.graph.num_nodes)
    for batch in run.view(OBSERVER).messages.of(LatentGradients):
        assert isinstance(batch.payload, LatentGradients)
        reached[batch.receivers] += batch.payload.values.norm(dim=1) * (batch.round == 1)
    with_gradient = reached[result.nodes] > 0
    assert with_gradient.float().mean() >= 0.4
    if optimizer == "sgd" or kind is FeatureKind.BINARY:
        assert exact[with_gradient].float().mean() >= 0.95
    assert result.proven is not None and not bool(result.proven[~with_gradient].any())


def test_nfedgnn_uploads_no_weights() -> None:
    assert "uploads" in (attack("weight-difference").unsupported(recorded(**WIDE).view(OBSERVER)) or "")


LATENT_ATTACKS = ("sparse-recovery", "weight-replay")


@pytest.mark.parametrize("name", LATENT_ATTACKS)
def test_self_test_and_conformance(name: str) -> None:
    run = recorded(**WIDE)
    view = run.view(OBSERVER)
    check_attack(attack(name), view)
    game = game_of(run, OBSERVER)
    known = set(view.auxiliary.nodes.tolist())
    assert game.targets.tolist() == [n for n in range(run.graph.num_nodes) if n not in known]
    control = prior_only(view, game.targets, derive(0, "control"))
    assert self_test(attack(name), view, game, control) is None


def test_the_other_reconstructions_find_what_is_planted() -> None:
    dropped = recorded(hidden=48, rounds=16, smoothness=1.0, feature_dropout=0.5)
    uploads = record(CNFGNN(rounds=1), per_user())
    decoded = recorded(**WIDE)
    for name, run in (("masked-rounds", dropped), ("weight-difference", uploads), ("latent-decoder", decoded)):
        view: View = run.view(dataclasses.replace(OBSERVER, auxiliary=0.3))
        check_attack(attack(name), view)
        planted = planted_for(attack(name), view, derive(0, "plant"))
        result = attack(name).run(planted.view, rng=derive(0, "planted"), device=CPU)
        assert isinstance(result, Reconstruction)
        order = torch.searchsorted(result.nodes, planted.nodes)
        assert (result.rows[order] == planted.rows).all(1).float().mean() >= 0.95


@pytest.mark.parametrize(
    ("name", "topology"), [("latent-similarity", False), ("latent-labels", False), ("latent-labels", True)]
)
def test_inferences_find_what_is_planted_and_beat_a_guess_without_topology(name: str, topology: bool) -> None:
    run = recorded(hidden=16, rounds=60, smoothness=10.0, learning_rate=0.05)
    view = run.view(Observer((SERVER,), topology=topology, auxiliary=0.2))
    plugin = attack(name)
    check_attack(plugin, view)
    asked, rng = inferred(type(plugin).quantity), derive(0, "control")
    planted = planted_for(plugin, view, derive(0, "plant"))
    question = asked.planted(planted)
    found = plugin.run(planted.view, rng=derive(0, "planted"), device=CPU)
    assert isinstance(found, Inference)
    score = asked.score(question, found, asked.guess(planted.view, question.subjects, rng))
    assert float(score.values.mean()) >= 0.95
    if not topology:
        real = asked.ask(truth_about(run, view.observer))
        assert isinstance(real, Question)
        result = plugin.run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Inference)
        guess = asked.guess(view, real.subjects, rng)
        values = [asked.score(real, answer, guess).values.mean() for answer in (result, guess)]
        assert values[0] >= values[1] + 0.1


@pytest.mark.parametrize("adam", [True, False])
def test_replay_is_the_optimizer_of_torch(adam: bool) -> None:
    rng = derive(1, "replay")
    start = torch.randn(1, 5, generator=rng)
    weight = torch.nn.Parameter(start.clone())
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind([weight], lr=0.1, weight_decay=5e-4)
    replay = Replay(UserOptimizer(adam, 0.1, 5e-4), start.double())
    for _ in range(10):
        gradient = torch.randn(1, 5, generator=rng)
        weight.grad = gradient.clone()
        optimizer.step()
        replay.step(gradient.double())
    assert torch.allclose(replay.weights.float(), weight.detach(), atol=2e-5)


def test_legendre_polynomials_are_orthonormal() -> None:
    u = torch.linspace(-1, 1, 20001, dtype=torch.double)
    p = legendre(u, 5)
    gram = p.mT @ p / len(u)
    assert torch.allclose(gram, torch.eye(6, dtype=torch.double), atol=5e-3)


def test_count_shift_meets_the_count() -> None:
    odds = torch.randn(4, 50, generator=derive(2, "odds")) * 3 - 3
    count = torch.tensor([1.0, 5.0, 20.0, 40.0])
    assert torch.allclose((odds + count_shift(odds, count, steps=60)).sigmoid().sum(1), count, atol=1e-3)


def test_only_the_right_row_fits_and_few_latents_prove_nothing() -> None:
    rng = derive(3, "fit")
    matrix = torch.rand(6, 10, generator=rng) - 0.5
    everything = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 10)
    truth = everything[371]
    fits = fitting(Measurements(matrix), (matrix @ truth).expand(len(everything), -1), everything)
    assert fits.nonzero().flatten().tolist() == [371]
    assert determined(Measurements(matrix))
    assert not determined(Measurements(torch.rand(16, 1433, generator=rng) - 0.5))
