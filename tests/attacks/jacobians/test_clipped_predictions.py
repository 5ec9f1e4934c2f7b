"""Labels from hidden representations that were clipped: equal results where the clip does nothing, and no worse ones
for allowing for it."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from torch import Tensor

from fglaudit.attacks.jacobians.clipped_predictions import maybe_clipped, mean_prediction
from fglaudit.attacks.jacobians.label_reading import LabelReading
from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.defenses.noise.clipped_noise import ClippedNoise
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.facts import Clipped, Field
from fglaudit.graph import federate
from fglaudit.interfaces import Defense, Inference
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.rng import derive
from fglaudit.scoring.selftest import planted_flaw
from fglaudit.testing import Run, check_attack, record
from fglaudit.view import Observer, View

CPU = torch.device("cpu")
SERVER = Observer(parties=(-1,), topology=True)
BLIND = Observer(parties=(-1,))
ONE = Observer(parties=(2,), topology=True)
ROUNDS, NODES = 40, 60


@cache
def recorded(defense: Defense | None = None, draw: int = 0) -> Run:
    graph = draw_task("csbm-snc", CsbmTask(nodes=NODES, dimensions=30, samples=6), draw=draw)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    federated = federate(graph, list(torch.arange(NODES).unsqueeze(1)), graph.train, graph.val, graph.test)
    return record(GFLAPPNP(rounds=ROUNDS, hidden=16, variant="v2"), federated, defense)


def clipping(bound: float) -> Clipping:
    return Clipping(clip=(bound,), on=("HiddenRepresentations",))


def estimate(view: View) -> Tensor:
    result = LabelReading().run(view, rng=derive(0, "attack"), device=CPU)
    assert isinstance(result, Inference)
    return result.estimate


def accuracy(run: Run, observer: Observer, view: View) -> float:
    own = torch.tensor(observer.clients, dtype=torch.long)
    y = run.graph.y.flatten()[~torch.isin(torch.arange(NODES), own)]
    return float((estimate(view).argmax(1) == y).float().mean())


@pytest.mark.parametrize("observer", [SERVER, BLIND, ONE])
def test_a_clip_that_shortens_nothing_changes_nothing(observer: Observer) -> None:
    weak = clipping(1.0).weakened(1e-6)
    assert torch.equal(estimate(recorded(weak).view(observer)), estimate(recorded().view(observer)))


@pytest.mark.parametrize("observer", [SERVER, BLIND])
def test_allowing_for_the_clip_reads_no_fewer_labels(observer: Observer) -> None:
    """The same messages, read as if nobody had said that they were clipped."""
    allowed, as_received = [], []
    for draw in range(3):
        run = recorded(clipping(1.0), draw)
        view = run.view(observer)
        assert bool(maybe_clipped(view, {ROUNDS}, 0.0).any())
        silent = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=()))
        allowed.append(accuracy(run, observer, view))
        as_received.append(accuracy(run, observer, silent))
    assert sum(allowed) > sum(as_received)
    assert min(allowed) > 0.85


def test_a_client_takes_its_own_message_for_the_others() -> None:
    view = recorded(clipping(0.3)).view(ONE)
    assert bool(maybe_clipped(view, {ROUNDS}, 0.0)[2])
    silent = dataclasses.replace(view, public=dataclasses.replace(view.public, facts=()))
    assert not torch.equal(estimate(view), estimate(silent))


@pytest.mark.parametrize("observer", [SERVER, ONE])
def test_clipped_noise_is_allowed_for(observer: Observer) -> None:
    defense = ClippedNoise(epsilon=1e4, on="HiddenRepresentations")
    view = recorded(defense).view(observer)
    assert all(LabelReading().models(fact) for fact in view.public.facts)
    check_attack(LabelReading(), view)
    assert planted_flaw(LabelReading(), view, derive(0, "self-test"), CPU) is None


def test_cut_entries_are_not_allowed_for() -> None:
    """The largest entries may all end at the bound: the direction, and with it the prediction, is gone."""
    target = Field("HiddenRepresentations", direction="up")
    assert LabelReading().models(Clipped(target, "L1", 1.0))
    assert not LabelReading().models(Clipped(target, "elementwise", 1.0))


def test_predictions_by_hand() -> None:
    """A clipped message for class 0 against a sum for class 1 of the same length: neither is known to be longer. One
    that was not clipped loses against a sum that may have been longer."""
    own, sums = torch.tensor([[1.0, 0.0]] * 2).double(), torch.tensor([[0.0, 1.0]] * 2).double()
    both, whole = mean_prediction(own, sums, torch.tensor([True, False]))
    torch.testing.assert_close(both, torch.full((2,), 0.5, dtype=torch.double))
    assert float(whole[1]) > 0.6
    torch.testing.assert_close(
        mean_prediction(own, sums, torch.tensor([False, False])), (own + sums).softmax(1), rtol=0, atol=1e-12
    )
