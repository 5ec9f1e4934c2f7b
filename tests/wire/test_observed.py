"""Observed, not believed: honest sessions are never ``Unstated``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from observed_changes import (
    BAND,
    MODELS,
    NOISE,
    SUMS,
    Session,
    Shared,
    TreeNoise,
    both,
    clip,
    gaussian,
    laplace,
    run,
    then,
    to_grid,
)
from observed_runs import CLIENTS, caught, models
from torch import Tensor

from fglaudit.facts import (
    Additive,
    Clipped,
    Correlated,
    Fact,
    KeptColumns,
    Masked,
    Memoised,
    Rounded,
    Scaled,
)
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.mechanism import clip_messages, draw
from fglaudit.rng import derive, split
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.observing.observed import Observed


def stochastic(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return torch.floor(value / 0.7 + torch.rand(value.shape, generator=rng)) * 0.7


def levels(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    low, high = value.amin(1, keepdim=True), value.amax(1, keepdim=True)
    step = (high - low) / 7
    place = (value - low) / torch.where(step > 0, step, 1)
    return low + step * (place + torch.rand(value.shape, generator=rng)).floor().clamp(max=7)


def pairwise(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    whole = value.view(CLIENTS, -1)
    masks = torch.randn(whole.shape, generator=rng)
    return (whole + masks - masks.roll(1, 0)).view(value.shape)


HONEST: dict[str, Callable[[], Session]] = {
    "nothing": lambda: Session(),
    "gaussian": lambda: Session(both(lambda t: Additive(t, "gaussian", 0.3)), gaussian(0.3)),
    "tiny gaussian": lambda: Session(both(lambda t: Additive(t, "gaussian", 1e-7)), gaussian(1e-7)),
    "small gaussian": lambda: Session(both(lambda t: Additive(t, "gaussian", 1e-4)), gaussian(1e-4)),
    "laplace": lambda: Session(both(lambda t: Additive(t, "laplace", 2.0)), laplace(2.0)),
    "two noises": lambda: Session(
        both(lambda t: Additive(t, "gaussian", 0.3), lambda t: Additive(t, "laplace", 0.4)),
        then(gaussian(0.3), laplace(0.4)),
    ),
    "clipped gaussian": lambda: Session(
        both(lambda t: Clipped(t, "L2", 2.0), lambda t: Additive(t, "gaussian", 0.1)), then(clip(2.0), gaussian(0.1))
    ),
    "clipped laplace": lambda: Session(
        both(lambda t: Clipped(t, "elementwise", 2.0), lambda t: Additive(t, "laplace", 0.1)),
        then(clip(2.0, "elementwise"), laplace(0.1)),
    ),
    "clipped": lambda: Session(both(lambda t: Clipped(t, "L1", 2.0)), clip(2.0, "l1")),
    "scaled": lambda: Session(both(lambda t: Scaled(t, 1.0, 0.1)), lambda v, g, b: 1 + 0.1 * v),
    "scaled noise": lambda: Session(
        both(lambda t: Additive(t, "gaussian", 0.5), lambda t: Scaled(t, 1.0, 0.1)),
        then(gaussian(0.5), lambda v, g, b: 1 + 0.1 * v),
    ),
    "kept columns": lambda: Session(
        (KeptColumns(SUMS, (0, 3)),), lambda v, g, b: v * (torch.arange(24) % 21 % 3 == 0) * (torch.arange(24) < 4),
        on=("NeighborSums",),
    ),
    "rounded": lambda: Session(both(lambda t: Rounded(t, 0.3, 0.1)), to_grid(0.3, 0.1)),
    "stochastic": lambda: Session(both(lambda t: Rounded(t, 0.7, stochastic=True)), stochastic),
    "levels of each message": lambda: Session(both(lambda t: Rounded(t, None, None, 8, True)), levels),
    "noise on a grid": lambda: Session(
        both(lambda t: Additive(t, "gaussian", 0.5), lambda t: Rounded(t, 0.05)), then(gaussian(0.5), to_grid(0.05))
    ),
    "memoised": lambda: Session(
        both(lambda t: Additive(t, "gaussian", 1.0), lambda t: Memoised(t)), Shared()
    ),
    "correlated over rounds": lambda: Session(
        both(lambda t: Additive(t, "gaussian", 1.0), lambda t: Correlated(t, BAND)), TreeNoise()
    ),
    "masks that cancel": lambda: Session((Masked(MODELS),), pairwise, on=("ModelUpdate",)),
    "noise from round 2 on": lambda: Session(
        (Additive(dataclasses.replace(MODELS, since=2), "gaussian", 1.0),),
        lambda v, g, b: gaussian(1.0)(v, g, b) if b.round >= 2 else v,
        on=("ModelUpdate",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_session_is_never_unstated(name: str) -> None:
    for seed in range(5):
        assert run(HONEST[name](), seed).unstated == (), seed


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_noise_on_one_message_of_few_values_is_never_unstated(distribution: str) -> None:
    """Many tests on very small samples: bounds must hold at every size, of what leaves in each of 3000 rounds. In the
    first 500 the session is asked again too, by the channel, which takes a hundred times as long."""
    change = gaussian(0.1) if distribution == "gaussian" else laplace(0.1)
    session = Session((Additive(MODELS, distribution, 0.1),), change)
    channel, rng = RecordingChannel(session, 1, derive(3)), derive(4)
    watched = Observed(session)
    for round in range(3000):
        payload = ModelUpdate(torch.full((1, 1 + round % 3), 0.5))
        batch = MessageBatch(round, torch.tensor([0]), torch.tensor([SERVER]), payload)
        watched.released(batch, payload.tensors(), session.release(batch, rng))
        if round < 500:
            channel.send(batch)
    assert channel.unstated == watched.unstated == ()


def test_the_clip_is_around_what_was_received() -> None:
    class Moves(DefenseSession):
        def __init__(self, around: str) -> None:
            self.around = around
            self.start = torch.zeros(0)

        def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
            if not isinstance(batch.payload, ModelUpdate):
                return batch.payload
            if bool((batch.senders == SERVER).all()):
                self.start = batch.payload.vector
                return batch.payload
            change = clip_messages(batch.payload.vector - self.start, 3.0)
            return ModelUpdate(self.start + change + 0.1 * torch.randn(change.shape, generator=rng))

        def facts(self) -> tuple[Fact, ...]:
            return (Clipped(MODELS, "L2", 3.0, around=self.around), Additive(MODELS, "gaussian", 0.1))

    assert run(Moves("received")).unstated == ()
    assert caught(run(Moves("zero"))) == {"ModelUpdate"}


def test_watching_draws_one_generator_a_call_and_nothing_else() -> None:
    rng, plain = derive(0, "defense"), derive(0, "defense")
    given = models(1)
    sent = RecordingChannel(Session(NOISE, gaussian(1.0)), CLIENTS, rng).send(given)
    noise = draw("gaussian", torch.Size((CLIENTS, 1200)), split(plain, "a call"))
    assert torch.equal(rng.get_state(), plain.get_state())
    assert isinstance(sent, ModelUpdate) and isinstance(given.payload, ModelUpdate)
    assert torch.allclose(sent.vector - given.payload.vector, noise.to(sent.vector), atol=1e-5)


def test_a_defense_that_overrides_nothing_is_not_watched() -> None:
    channel = RecordingChannel(DefenseSession(), CLIENTS, derive(0))
    batch = models(1)
    assert channel.send(batch) is batch.payload
