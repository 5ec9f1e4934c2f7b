"""Mask-flip differencing by one client of GFL-APPNP: rows, signs, scales, claims; with noise, several samples, no
edges."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import pytest
import torch
from node_graphs import graph as node_graph
from scored_runs import game_of, self_test
from swapped_data import with_data
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.attacks.jacobians.clipped_flips import common_length
from fglaudit.attacks.jacobians.known_propagation import known_propagation
from fglaudit.attacks.jacobians.lone_rows import Population
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.attacks.jacobians.mixture_rows import MixtureRows, recover_rows
from fglaudit.attacks.jacobians.switched_sums import candidate_sums
from fglaudit.attacks.jacobians.weighted_rows import name_rows
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.facts import Additive, Clipped, Field
from fglaudit.graph import FeatureKind, FederatedGraph, canonical_edges, federate
from fglaudit.interfaces import Defense, Reconstruction
from fglaudit.nn.propagation import personalised_propagation
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.quantities.rows.claims import Claims, check_claims
from fglaudit.quantities.rows.features import exact_share
from fglaudit.quantities.rows.game import Game
from fglaudit.rng import derive
from fglaudit.structure import Propagation
from fglaudit.testing import Run, check_attack, record
from fglaudit.view import Observer, View
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")
ONE = Observer(parties=(3,), topology=True)


@cache
def federated(data: str = "csbm-dnc", samples: int | None = None) -> FederatedGraph:
    graph = draw_task(data, CsbmTask(nodes=60, degree=6.0, dimensions=40, samples=samples), draw=0)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    return federate(graph, list(torch.arange(graph.num_nodes).unsqueeze(1)), graph.train, graph.val, graph.test)


@cache
def recorded(
    graph: str = "csbm-dnc", defense: Defense | None = None, samples: int | None = None, **options: Any
) -> Run:
    return record(GFLAPPNP(hidden=24, **{"rounds": 80, **options}), federated(graph, samples), defense)


def rebuild(view: View) -> Reconstruction:
    result = MaskFlip().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


def claims(run: Run, observer: Observer, result: Reconstruction) -> Claims:
    checked = check_claims(result, game_of(run, observer), run.view(observer))
    assert checked is not None
    return checked


def owners(result: Reconstruction, x: Tensor) -> Tensor:
    """The node whose row has the direction of each rebuilt row."""
    cosine = torch.nn.functional.normalize(result.rows, dim=1) @ torch.nn.functional.normalize(x, dim=1).T
    return cosine.abs().argmax(1)


def test_one_client_finds_the_rows_of_nearly_everybody() -> None:
    run = recorded()
    result = rebuild(run.view(ONE))
    counted = claims(run, ONE, result)
    assert int(counted.found.sum()) >= 0.95 * len(counted.found)
    assert counted.claimed is not None and counted.claimed >= 0.95 * len(counted.found)
    assert counted.false == 0
    owner = owners(result, run.graph.x)
    assert bool((torch.cosine_similarity(result.rows, run.graph.x[owner]) > 0.9999).all()), "signs are resolved too"
    ratio = result.rows.norm(dim=1) / run.graph.x[owner].norm(dim=1)
    assert float((ratio - 1).abs().median()) < 0.15, "weights are known from the edges, up to lengths that differ"


def test_it_conforms_and_passes_its_self_test() -> None:
    run = recorded(rounds=12)
    for observer in (ONE, Observer(parties=(3,)), Observer(parties=(3, 9), topology=True)):
        view = run.view(observer)
        check_attack(MaskFlip(), view)
        game = game_of(run, observer)
        control = Reconstruction(torch.zeros_like(game.truth), game.targets, torch.zeros(len(game.targets)))
        assert self_test(MaskFlip(), view, game, control) is None


@pytest.mark.parametrize("edges", ["drawn", "star"])
@pytest.mark.parametrize("rounds", [4, 30])
@pytest.mark.parametrize("rows", ["negative", "binary"])
def test_sums_of_rows_that_flip_together_are_not_claimed(rows: str, rounds: int, edges: str) -> None:
    """Where all entries have one sign, rows flip at once: 40 of 42 claims were sums of several."""
    graph = node_graph()
    if rows == "negative":
        graph = dataclasses.replace(graph, x=-graph.x.abs())
    else:
        x = (torch.randn(graph.x.shape, generator=derive(5, "rows")) > 0).float()
        graph = dataclasses.replace(graph, x=x, features=FeatureKind.BINARY)
    if edges == "star":
        leaves = torch.arange(1, graph.num_nodes)
        star = canonical_edges(torch.stack([torch.zeros_like(leaves), leaves]), graph.num_nodes)
        graph = dataclasses.replace(graph, edge_index=star)
    run = record(GFLAPPNP(hidden=8, rounds=rounds, local_steps=2 if rounds == 4 else 10), graph)
    for client in range(0, 30, 6):
        observer = Observer((client,), topology=True)
        assert claims(run, observer, rebuild(run.view(observer))).false == 0


def test_sums_of_clipped_rows_that_flip_together_are_not_claimed() -> None:
    """35 of 43 claims were sums."""
    graph = node_graph()
    x = (torch.randn(graph.x.shape, generator=derive(5, "rows")) > 0).float()
    graph = dataclasses.replace(graph, x=x, features=FeatureKind.BINARY)
    run = record(GFLAPPNP(hidden=8, rounds=30), graph, Clipping(clip=(1.0, 5.0)))
    for client in (0, 6, 12):
        observer = Observer((client,), topology=True)
        assert claims(run, observer, rebuild(run.view(observer))).false == 0


def test_as_many_rows_as_there_are_are_claimed() -> None:
    run = record(GFLAPPNP(hidden=8, rounds=30), node_graph())
    observer = Observer((0,), topology=True)
    counted = claims(run, observer, rebuild(run.view(observer)))
    assert (counted.claimed, counted.false) == (29, 0)


def test_without_the_edges_rows_have_directions_and_no_names() -> None:
    run = recorded()
    observer = Observer(parties=(3,))
    result = rebuild(run.view(observer))
    assert bool((result.nodes == -1).all())
    assert int(claims(run, observer, result).found.sum()) >= 0.95 * 59


def test_nothing_but_the_messages_is_read() -> None:
    run = recorded()
    shifted = with_data(run, dataclasses.replace(run.graph, x=run.graph.x.index_fill(0, torch.arange(10, 60), 7.0)))
    assert bool((shifted.view(Observer(parties=(12,))).own[0].x == 7.0).all())
    assert torch.equal(rebuild(run.view(ONE)).rows, rebuild(shifted.view(ONE)).rows)


def test_under_v1_nothing_false_is_claimed() -> None:
    run = recorded(variant="v1")
    result = rebuild(run.view(ONE))
    counted = claims(run, ONE, result)
    assert counted.false <= 0.02 * (counted.claimed or 0)


def test_as_noise_vanishes_it_finds_what_it_finds_without() -> None:
    small = recorded(variant="v1", jacobian_noise=1e-6)
    counted = claims(small, ONE, rebuild(small.view(ONE)))
    assert int(counted.found.sum()) >= 0.8 * len(counted.found)
    assert counted.false <= 0.02 * (counted.claimed or 0)


@pytest.mark.parametrize("bits", [4, 16])
def test_quantised_jacobians_lead_to_no_false_claims(bits: int) -> None:
    run = recorded(defense=Quantisation(bits=bits, on=("Jacobians",)))
    counted = claims(run, ONE, rebuild(run.view(ONE)))
    assert counted.false <= 0.02 * (counted.claimed or 0)


def test_several_samples_per_node_are_claimed_only_where_they_are_right() -> None:
    run = recorded("csbm-snc", samples=3, learning_rate=0.05)
    counted = claims(run, ONE, rebuild(run.view(ONE)))
    assert len(counted.found) == 59 * 3
    assert counted.false <= 0.02 * (counted.claimed or 0)
    assert int(counted.found.sum()) > 0.5 * len(counted.found)


@pytest.mark.parametrize("observer", [Observer((0,)), Observer((0,), topology=True)])
@pytest.mark.parametrize("samples", [4, 20])
def test_its_self_test_holds_with_several_samples_per_node(observer: Observer, samples: int) -> None:
    view = recorded("csbm-snc", samples=samples, rounds=5).view(observer)
    planted = MaskFlip().plant(view, rng=derive(0, "plant"))
    asked = Game.about(planted.nodes, planted.rows, planted.view.public.features)
    assert len(planted.rows) == min(samples, 6) and len(torch.unique(planted.nodes)) == 1
    assert exact_share(rebuild(planted.view), asked) == 1


@pytest.mark.parametrize("scaled", [False, True])
def test_discrete_rows_name_their_weight(scaled: bool) -> None:
    graph, rng = federated(), derive(0, "bits")
    bits = (torch.rand(60, 40, generator=rng) < 0.2).float()
    bits[:, 0] = 1
    x = bits / bits.sum(1, keepdim=True) if scaled else bits
    view = recorded().view(ONE)
    kind = FeatureKind.SCALED_BINARY if scaled else FeatureKind.BINARY
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, features=kind))
    weights = known_propagation(view, view.own[0])
    assert weights is not None
    others = torch.arange(60) != 3
    yes = torch.ones(59, dtype=torch.bool)
    found = MixtureRows(torch.zeros(59, dtype=torch.long), (weights[:, None] * x)[others], yes, yes)
    result = name_rows(view, view.own[0], found, weights)
    right = result.nodes == torch.arange(60)[others]
    torch.testing.assert_close(result.rows, x[others])
    assert bool(right[result.confidence > 0.9].all()) and float(right.float().mean()) > 0.9
    assert graph.num_nodes == 60


@pytest.mark.parametrize("truncated", [False, True])
def test_weights_are_those_of_the_protocol(truncated: bool) -> None:
    view = recorded(truncated=truncated).view(ONE)
    weights = known_propagation(view, view.own[0])
    rule = view.public.structure.of(Propagation)
    assert view.topology is not None and weights is not None
    assert rule.truncated == truncated
    matrix = personalised_propagation(view.topology, 60, rule.alpha, rule.steps, truncated=truncated)
    assert float(weights[3]) == 0
    torch.testing.assert_close(torch.cat([weights[:3], weights[4:]]), torch.cat([matrix[3, :3], matrix[3, 4:]]))
    alone = recorded().view(Observer(parties=(3,)))
    assert known_propagation(alone, alone.own[0]) is None


def test_payloads_that_do_not_fit_are_refused() -> None:
    view = recorded(rounds=12).view(ONE)
    public = dataclasses.replace(view.public, layout={"layers.0.weight": (40, 8), "layers.1.weight": (8, 2)})
    assert "public layout" in (MaskFlip().unsupported(dataclasses.replace(view, public=public)) or "")
    silent = dataclasses.replace(view, messages=Transcript().seen_by(ONE))
    assert "received no" in (MaskFlip().unsupported(silent) or "")
    server = recorded(rounds=12).view(Observer(parties=(-1,)))
    assert "jacobian-reading" in (MaskFlip().unsupported(server) or "")
    assert "no PropagatedJacobians" in (MaskFlip().unsupported(recorded(rounds=12, variant="v2").view(ONE)) or "")


def test_stated_noise_is_taken_into_account() -> None:
    view = recorded().view(ONE)
    noise = Additive(Field("Jacobians", direction="up"), "laplace", 10.0)
    public = dataclasses.replace(view.public, facts=(noise,))
    result = rebuild(dataclasses.replace(view, public=public))
    assert len(result.rows) == 0 or not bool(result.claimed.any())  # type: ignore[union-attr]


@pytest.mark.parametrize(("clip", "least"), [(1.0, 4), (5.0, 6)])
def test_jacobians_clipped_to_a_norm_show_lone_flips(clip: float, least: int) -> None:
    """At 1 every Jacobian is clipped, at 5 about half of them; without a model of the clip far fewer are found."""
    run = recorded(defense=Clipping(clip=(clip,), on=("Jacobians",)))
    view = run.view(ONE)
    counted = claims(run, ONE, rebuild(view))
    assert int(counted.found.sum()) >= least
    assert counted.claimed is not None and counted.false <= 0.15 * counted.claimed
    assert all(MaskFlip().models(fact) for fact in view.public.facts)
    unmodelled = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=()))
    assert int(counted.found.sum()) > int(claims(run, ONE, rebuild(unmodelled)).found.sum())


def test_clipped_jacobians_with_much_noise_lead_to_no_claims() -> None:
    run = recorded(rounds=40, defense=JointNoise(epsilon=8.0, on=("Jacobians",), clip=(1.0,)))
    result = rebuild(run.view(ONE))
    assert result.claimed is not None and not bool(result.claimed.any())
    assert all(MaskFlip().models(fact) for fact in run.view(ONE).public.facts)


def test_a_clip_of_single_entries_is_not_allowed_for() -> None:
    target = Field("Jacobians", direction="up")
    assert not MaskFlip().models(Clipped(target, "elementwise", 1.0, "message"))
    assert not MaskFlip().models(Clipped(target, "L1", 1.0, "message"))
    assert MaskFlip().models(Clipped(target, "L2", 1.0, "message"))


def test_the_common_length_is_that_of_jacobians_of_unit_rows() -> None:
    rng = derive(0, "length")
    w1, w2 = torch.randn(1, 30, 20, generator=rng).double(), torch.randn(1, 20, 4, generator=rng).double()
    x = torch.nn.functional.normalize(torch.randn(4000, 30, generator=rng).double(), dim=1)
    active = (x @ w1[0]).clamp(min=0)
    squares = (active > 0).double() @ w2[0].square().sum(1) + 4 * active.square().sum(1)
    torch.testing.assert_close(common_length(w1, w2)[0], squares.mean().sqrt(), rtol=0.01, atol=0)


def test_differences_of_discrete_rows_with_as_many_entries_are_merged() -> None:
    """All of them are equally long: sorted by length equal ones lay apart, and stood as several rows each."""
    rng = derive(0, "rows")
    rows = torch.tensor([[1.0, 1, 0, 0, 1, 0], [1, 0, 1, 0, 0, 1], [0, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1]])
    shown = rows.repeat(40, 1)[torch.randperm(160, generator=rng)] * torch.rand(160, 1, generator=rng).sub(0.5).sign()
    found = candidate_sums(shown, torch.full((160,), 1e-6), torch.zeros(160, dtype=torch.long))
    assert found.count.tolist() == [40] * 4


def test_small_rows_are_found_beside_far_larger_ones() -> None:
    """The rounding of rows of a million hides flips of the others, which was taken to refute them."""
    found = 0
    for seed in range(3):
        rng = derive(seed, "rows")
        rows = torch.randn(9, 12, generator=rng, dtype=torch.double)
        rows[:3] *= 1e6
        start, stop = torch.randn(2, 12, 16, generator=rng, dtype=torch.double)
        angle = torch.linspace(0, math.pi, 48, dtype=torch.double)[:, None, None]
        weights = start * angle.cos() + stop * angle.sin()
        sums = torch.einsum("thn,nf->thf", (torch.einsum("nf,tfh->thn", rows, weights) > 0).double(), rows).float()
        population = Population(torch.randn(2, 12, generator=rng), 9, discrete=False)
        seen = recover_rows(sums[None], torch.zeros(1, 48, 16), weights.float(), population)
        cosine = (normalize(seen.rows[seen.claimed].double(), dim=1) @ normalize(rows, dim=1).mT).abs()
        assert bool((cosine.amax(1) > 0.9999).all()), "a claim is false"
        found += int((cosine.amax(0) > 0.9999).sum())
    assert found >= 20, "of 27 rows"
