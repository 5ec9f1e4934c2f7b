"""What GFL-APPNP's server reads: rows off Jacobians, with one sample or several, under noise; rows off representations;
labels."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch
from scored_runs import game_of, self_test
from torch import Tensor

from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.attacks.jacobians.encoder import Model, activations, unit_rows
from fglaudit.attacks.jacobians.encoder_inversion import invert_encoder
from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.jacobians.label_reading import LabelReading
from fglaudit.attacks.jacobians.lone_rows import Population
from fglaudit.attacks.jacobians.mixture_rows import recover_rows
from fglaudit.attacks.jacobians.representation_inversion import RepresentationInversion
from fglaudit.attacks.jacobians.switched_sums import Mixtures, box_least_squares, separate
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.facts import Additive, Clipped, Fact, Field, Rounded
from fglaudit.graph import FederatedGraph, federate
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.payloads import HiddenRepresentations, Jacobians, MessageBatch
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.quantities.rows.claims import check_claims
from fglaudit.quantities.rows.features import exact_share
from fglaudit.quantities.rows.game import score
from fglaudit.rng import derive
from fglaudit.testing import Run, check_attack, record
from fglaudit.view import Observer, View
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")
SERVER = Observer(parties=(-1,), topology=True)


@cache
def recorded(
    data: str = "csbm-dnc", rounds: int = 12, nodes: int = 40, samples: int | None = None, **options: Any
) -> Run:
    task = CsbmTask(nodes=nodes, degree=6.0, dimensions=24, samples=samples)
    graph = draw_task(data, task, draw=0)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    clients = list(torch.arange(graph.num_nodes).unsqueeze(1))
    federated = federate(graph, clients, graph.train, graph.val, graph.test)
    return record(GFLAPPNP(rounds=rounds, hidden=16, **options), federated)


def rebuild(attack: Attack, view: View) -> Reconstruction:
    result = attack.run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Reconstruction)
    return result


def cosine(result: Reconstruction, graph: FederatedGraph) -> Tensor:
    return torch.cosine_similarity(result.rows, graph.x[result.nodes])


def jacobian_by_autograd(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """The Jacobian [C, D] of the mean representation of samples ``x`` [S, F], by differentiation."""

    def mean(vector: Tensor) -> Tensor:
        first, second = torch.split(vector, [w1.numel(), w2.numel()])
        output: Tensor = ((x @ first.view_as(w1)).relu() @ second.view_as(w2)).mean(0)
        return output

    jacobian: Tensor = torch.autograd.functional.jacobian(mean, torch.cat([w1.flatten(), w2.flatten()]))  # type: ignore[no-untyped-call]
    return jacobian


def test_the_jacobian_is_a_linear_map_of_the_active_samples() -> None:
    rng = derive(0, "jacobian")
    x, w1, w2 = (torch.randn(*shape, generator=rng, dtype=torch.double) for shape in ((3, 5), (5, 4), (4, 2)))
    jacobian = jacobian_by_autograd(x, w1, w2)[None]
    rows, power = unit_rows(jacobian, Model(w1, w2))
    active = (x @ w1 > 0).double()
    torch.testing.assert_close(rows[0], active.T @ x / 3)
    torch.testing.assert_close(power, w2.square().sum(1))
    torch.testing.assert_close(activations(jacobian, Model(w1, w2))[0], (x @ w1).relu().mean(0))


def test_one_sample_per_node_is_read_exactly_from_the_first_round() -> None:
    run = recorded()
    view = run.view(SERVER)
    result = rebuild(JacobianReading(), view)
    assert score([game_of(run, SERVER)], [result]).rows.exact_rate.min() == 1
    assert result.proven is not None and bool(result.proven.all())
    check_attack(JacobianReading(), view)


def test_several_samples_are_taken_apart() -> None:
    run = recorded("csbm-snc", rounds=40, nodes=12, samples=8)
    result = rebuild(JacobianReading(), run.view(SERVER))
    assert len(result.rows) == 12 * 8
    assert float(score([game_of(run, SERVER)], [result], matching=False).rows.exact_rate.mean()) > 0.95
    claims = check_claims(result, game_of(run, SERVER), run.view(SERVER))
    assert claims is not None and claims.false == 0 and claims.claimed is not None and claims.claimed > 0.95 * 96


@pytest.mark.parametrize("clips", [(1e9, 0.3), (1e-3, 0.3)])
def test_clipped_jacobians_show_rows_and_clear_representations_their_length(clips: tuple[float, float]) -> None:
    run = record(recorded().protocol, recorded().graph, Clipping(clip=clips))
    result = rebuild(JacobianReading(), run.view(SERVER))
    claims = check_claims(result, game_of(run, SERVER), run.view(SERVER))
    assert bool(claims.found.all()) and claims.false == 0
    exact = score([game_of(run, SERVER)], [result]).rows.exact_rate.mean()
    assert exact == (1 if clips[0] > 1 else 0)


def test_noise_on_jacobians_is_averaged_out_and_helps_the_inversion() -> None:
    run = recorded(rounds=60, nodes=24, variant="v1")
    view = run.view(SERVER)
    attack = JacobianReading()
    result = rebuild(attack, view)
    assert float(cosine(result, run.graph).median()) > 0.99
    # Without the clear representations the average alone is left: worse, and no exact row is claimed.
    alone = rebuild(attack, dataclasses.replace(view, messages=_Without(view.messages, HiddenRepresentations)))
    assert 0.8 < float(cosine(alone, run.graph).median()) < float(cosine(result, run.graph).median())
    assert alone.claimed is not None and not bool(alone.claimed.any())


@dataclasses.dataclass(frozen=True)
class _Without:
    messages: Any
    dropped: type

    def of(self, payload: type) -> Any:
        return iter(()) if payload is self.dropped else self.messages.of(payload)


@dataclasses.dataclass(frozen=True)
class _Changed:
    """Messages whose Jacobians a defense changed."""

    messages: Any
    change: Any

    def of(self, payload: type) -> Any:
        for batch in self.messages.of(payload):
            body = Jacobians(self.change(batch.payload.values)) if payload is Jacobians else batch.payload
            yield MessageBatch(batch.round, batch.senders, batch.receivers, body)


def clip(values: Tensor) -> Tensor:
    norm = values.flatten(1).norm(dim=1)
    clipped: Tensor = values * (0.5 * norm.median() / norm).clamp(max=1)[:, None, None]
    return clipped


def quantise(values: Tensor) -> Tensor:
    return (values / 0.02).round() * 0.02


def add_noise(values: Tensor) -> Tensor:
    return values + 1e-4 * torch.randn(values.shape, generator=derive(0, "noise"))


SENT = Field("Jacobians", direction="up")


@pytest.mark.parametrize(
    "change, fact",
    [(clip, Clipped(SENT, "L2", 1.0)), (quantise, Rounded(SENT, 0.02)), (add_noise, Additive(SENT, "gaussian", 1e-4))],
)
def test_it_adapts_to_a_defense(change: Any, fact: Fact) -> None:
    run = recorded(rounds=24)
    view = run.view(SERVER)
    public = dataclasses.replace(view.public, facts=(fact,))
    result = rebuild(
        JacobianReading(), dataclasses.replace(view, public=public, messages=_Changed(view.messages, change))
    )
    error = (result.rows - run.graph.x[result.nodes]).norm(dim=1) / run.graph.x[result.nodes].norm(dim=1)
    assert float(error.median()) < 0.02


@pytest.mark.parametrize("attack", [JacobianReading(), RepresentationInversion(starts=1)])
def test_it_passes_its_self_test_and_sees_nothing_in_noise(attack: Attack) -> None:
    run = recorded(rounds=4)
    view, game = run.view(SERVER), game_of(run, SERVER)
    blank = torch.zeros_like(game.truth)
    control = Reconstruction(blank, game.targets, torch.zeros(len(blank)))
    assert self_test(attack, view, game, control) is None


def test_representations_of_moving_weights_are_inverted() -> None:
    rng = derive(0, "inversion")
    models = [
        Model(
            torch.randn(6, 8, generator=rng, dtype=torch.double), torch.randn(8, 2, generator=rng, dtype=torch.double)
        )
        for _ in range(30)
    ]
    x = torch.randn(5, 6, generator=rng, dtype=torch.double)
    hidden = torch.stack([(x @ m.w1).relu() @ m.w2 for m in models], 1)
    wide, prior = torch.full((5,), 1e-9, dtype=torch.double), torch.zeros_like(x)
    start = x + 0.3 * torch.randn(x.shape, generator=rng, dtype=torch.double)
    found = invert_encoder(hidden, models, wide, start, prior, torch.ones(5, dtype=torch.double), steps=80)
    assert bool(found.fits.all())
    torch.testing.assert_close(found.rows, x, rtol=0, atol=1e-6)


def test_a_frozen_encoder_does_not_determine_rows_and_nothing_is_claimed() -> None:
    run = recorded(variant="v2", learning_rate=1e-6)
    result = rebuild(RepresentationInversion(starts=1), run.view(SERVER))
    assert result.claimed is not None and not bool(result.claimed.any())
    assert exact_share(result, game_of(run, SERVER)) == 0


@pytest.mark.parametrize("observer", [SERVER, Observer(parties=(-1,)), Observer(parties=(2,), topology=True)])
def test_labels(observer: Observer) -> None:
    run = recorded(rounds=30, nodes=60)
    view = run.view(observer)
    check_attack(LabelReading(), view)
    result = LabelReading().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Inference)
    y = run.graph.y[result.subjects]
    right = result.estimate.argmax(1) == y
    if -1 in observer.parties:
        trainers = torch.cat(run.graph.train).nonzero().squeeze(1)
        assert bool(right[trainers].all())
        assert float(right.float().mean()) > 0.75
    planted = LabelReading().plant(view, rng=derive(0, "plant"))
    guess = LabelReading().run(planted.view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(guess, Inference)
    place = torch.searchsorted(guess.subjects, planted.nodes)
    assert torch.equal(guess.estimate[place].argmax(1), planted.rows)


def test_payloads_that_do_not_fit_are_refused() -> None:
    view = recorded().view(SERVER)
    public = dataclasses.replace(view.public, layout={"layers.0.weight": (24, 8), "layers.1.weight": (8, 2)})
    assert "public layout" in (JacobianReading().unsupported(dataclasses.replace(view, public=public)) or "")
    deep = dataclasses.replace(view.public, layout={"weight": (24, 2)})
    assert "two layers" in (JacobianReading().unsupported(dataclasses.replace(view, public=deep)) or "")
    other = dataclasses.replace(view.public, num_features=25)
    assert "25" in (JacobianReading().unsupported(dataclasses.replace(view, public=other)) or "")
    silent = dataclasses.replace(view, messages=Transcript().seen_by(SERVER))
    for attack in (JacobianReading(), RepresentationInversion(), LabelReading()):
        assert "received no" in (attack.unsupported(silent) or "")
    assert "no Jacobians" in (JacobianReading().unsupported(recorded(variant="v2").view(SERVER)) or "")


def test_separation_by_hand() -> None:
    """Two rows in the plane, three directions: each pair of neighbouring directions has one row between them."""
    rows = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    directions = torch.tensor([[-1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]])
    sums = ((rows @ directions > 0).float().T @ rows)[None]
    mixtures = Mixtures(sums, torch.full((1, 3), 1e-6), directions, torch.tensor([0, 1]), torch.tensor([1, 2]))
    found = separate(dataclasses.replace(mixtures, start=torch.tensor([0, 1, 0]), stop=torch.tensor([1, 2, 0])))
    assert sorted(found.rows.abs().tolist()) == [[0.0, 1.0], [2.0, 0.0]]
    assert found.flips.tolist() == found.explained.tolist() == [1, 1]


def test_box_least_squares_finds_bits() -> None:
    rng = derive(0, "bits")
    vectors = torch.randn(2, 30, 24, generator=rng, dtype=torch.double)
    bits = (torch.rand(2, 30, generator=rng) < 0.3).double()
    moment = (vectors @ (bits[:, None] @ vectors).mT).squeeze(2)
    assert torch.equal((box_least_squares(vectors @ vectors.mT, moment, 4000) > 0.5).double(), bits)


def test_rows_that_never_flip_and_signs_follow_from_the_sums() -> None:
    """Frozen weights: no flips over rounds at all; comparing units still takes a small mixture apart, signs
    included."""
    rng = derive(0, "frozen")
    rows = torch.randn(1, 4, 12, generator=rng)
    weights = torch.randn(12, 40, generator=rng).expand(2, -1, -1)
    sums = (rows @ weights[0] > 0).float().mT @ rows
    four = Population(rows.new_empty(0, 12), 4, discrete=False)
    found = recover_rows(sums[:, None].expand(-1, 2, -1, -1), torch.zeros(1, 2, 40), weights, four)
    assert bool(found.claimed.all()) and bool(found.signed.all())
    gap = torch.cdist(found.rows, rows[0])
    assert len(found.rows) == 4 and float(gap.amin(1).max()) < 1e-4


def test_labels_after_few_rounds_are_not_worse_than_known_labels_alone() -> None:
    """A model of few rounds predicts worse than label propagation from a third of the labels."""
    run = recorded(rounds=3, nodes=100)
    view = run.view(dataclasses.replace(SERVER, auxiliary=0.3))
    found = LabelReading().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(found, Inference)
    known = propagate_labels(view, found.subjects)
    asked = ~torch.isin(found.subjects, view.auxiliary.nodes)
    right, guess = (
        (e.argmax(1) == run.graph.y[found.subjects])[asked].double().mean() for e in (found.estimate, known)
    )
    assert right > guess - 0.06, (right, guess)
