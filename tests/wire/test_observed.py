"""Observed, not believed: honest sessions are never ``Unstated``, and every planted lie is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from observed_runs import CLIENTS, caught, models
from torch import Tensor

from fglaudit.facts import (
    Additive,
    Clipped,
    Correlated,
    Fact,
    Field,
    KeptColumns,
    Masked,
    Memoised,
    Rounded,
    Scaled,
    Target,
)
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.privacy.mechanism import clip_messages, draw
from fglaudit.rng import derive, split
from fglaudit.wire.channel import RecordingChannel

SUMS, MODELS = Field("NeighborSums", direction="up"), Field("ModelUpdate", direction="up")
ROUNDS = 6
Change = Callable[[Tensor, torch.Generator, MessageBatch], Tensor]


@dataclasses.dataclass
class Session(DefenseSession):
    """Changes the floating-point fields that clients send, and states what it likes."""

    stated: tuple[Fact, ...] = ()
    change: Change | None = None
    on: tuple[str, ...] = ("NeighborSums", "ModelUpdate")
    admits: bool = True

    def changes(self, payload: type[Payload]) -> bool:
        return self.admits

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        up = bool((batch.senders != SERVER).all())
        if self.change is None or type(batch.payload).__name__ not in self.on or not up:
            return batch.payload
        fields = {
            name: self.change(value, rng, batch) if value.is_floating_point() else value
            for name, value in batch.payload.tensors().items()
        }
        return type(batch.payload).from_tensors(fields)

    def facts(self) -> tuple[Fact, ...]:
        return self.stated


def sums(round: int, rows: int = 40, features: int = 24) -> MessageBatch:
    """Every client sends rows of sums of binary features."""
    rng = derive(7, "sums", round)
    values = (torch.rand(CLIENTS * rows, features, generator=rng) < 0.2).float() * torch.arange(1.0, features + 1)
    nodes = torch.arange(rows).repeat(CLIENTS)
    splits = torch.arange(CLIENTS + 1) * rows
    return MessageBatch(
        round, torch.arange(CLIENTS), torch.full((CLIENTS,), SERVER), NeighborSums(nodes, values), splits
    )


def returned(round: int, width: int = 1200) -> MessageBatch:
    vector = torch.randn(1, width, generator=derive(8, "models", round)).expand(CLIENTS, -1)
    return MessageBatch(round, torch.full((CLIENTS,), SERVER), torch.arange(CLIENTS), ModelUpdate(vector))


def run(session: DefenseSession, seed: int = 0, rounds: int = ROUNDS) -> RecordingChannel:
    channel = RecordingChannel(session, CLIENTS, derive(seed, "defense"))
    for round in range(rounds):
        channel.send(returned(round))
        channel.send(sums(round))
        channel.send(models(round))
    return channel


def gaussian(std: float) -> Change:
    return lambda value, rng, batch: value + (std * draw("gaussian", value.shape, rng)).to(value)


def laplace(scale: float) -> Change:
    return lambda value, rng, batch: value + (scale * draw("laplace", value.shape, rng)).to(value)


def then(*changes: Change) -> Change:
    def all_of(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        for change in changes:
            value = change(value, rng, batch)
        return value

    return all_of


def clip(bound: float, norm: str = "l2") -> Change:
    return lambda value, rng, batch: clip_messages(value, bound, norm)


def to_grid(step: float, center: float = 0.0) -> Change:
    return lambda value, rng, batch: center + step * torch.round((value - center) / step)


def stochastic(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return torch.floor(value / 0.7 + torch.rand(value.shape, generator=rng)) * 0.7


def levels(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    low, high = value.amin(1, keepdim=True), value.amax(1, keepdim=True)
    step = (high - low) / 7
    place = (value - low) / torch.where(step > 0, step, 1)
    return low + step * (place + torch.rand(value.shape, generator=rng)).floor().clamp(max=7)


def both(*facts: Callable[[Target], Fact]) -> tuple[Fact, ...]:
    return tuple(fact(target) for target in (SUMS, MODELS) for fact in facts)


class Shared:
    """One noise for all rounds."""

    def __init__(self) -> None:
        self.drawn: dict[torch.Size, Tensor] = {}

    def __call__(self, value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        if value.shape not in self.drawn:
            self.drawn[value.shape] = torch.randn(value.shape, generator=rng)
        return value + self.drawn[value.shape]


class TreeNoise:
    """Noise of a round that shares half of its variance with the round before."""

    def __init__(self) -> None:
        self.last: dict[torch.Size, Tensor] = {}

    def __call__(self, value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        fresh = torch.randn(value.shape, generator=rng)
        old = self.last.get(value.shape, torch.zeros_like(fresh))
        self.last[value.shape] = fresh
        return value + fresh + old


def pairwise(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    whole = value.view(CLIENTS, -1)
    masks = torch.randn(whole.shape, generator=rng)
    return (whole + masks - masks.roll(1, 0)).view(value.shape)


BAND = tuple(tuple(float(column in (row, row - 1)) for column in range(ROUNDS)) for row in range(ROUNDS))
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


def test_noise_on_one_message_of_few_values_is_never_unstated() -> None:
    """Many tests on very small samples: bounds must hold at every size."""
    fact = Additive(MODELS, "gaussian", 0.1)
    for distribution in ("gaussian", "laplace"):
        session = Session((Additive(MODELS, distribution, fact.scale),), gaussian(0.1))
        session.change = gaussian(0.1) if distribution == "gaussian" else laplace(0.1)
        channel = RecordingChannel(session, 1, derive(3))
        for round in range(3000):
            vector = torch.full((1, 1 + round % 3), 0.5)
            payload = ModelUpdate(vector)
            channel.send(MessageBatch(round, torch.tensor([0]), torch.tensor([SERVER]), payload))
        assert channel.unstated == ()


def in_place(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return value.mul_(0.5)


def sometimes(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return value + 0.01 if batch.round == 4 else value


def one_client(change: Change) -> Change:
    def only(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
        mine = (batch.senders[batch.entry_messages()] == 2).unsqueeze(1)
        return torch.where(mine, change(value, rng, batch), value)

    return only


def swapped(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    order = torch.arange(len(value))
    order[:2] = torch.tensor([1, 0])
    return value[order]


def rotated(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    basis = torch.linalg.qr(torch.randn(value.shape[1], value.shape[1], generator=rng)).Q
    turned: Tensor = value @ basis
    return turned


def by_value(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    """Gaussian noise of the stated mean size, larger where values are."""
    scale = 1 + 0.5 * (value.abs() > value.abs().median()).to(value)
    scale = scale / scale.square().mean().sqrt()
    return value + scale * torch.randn(value.shape, generator=rng)


def one_row(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return value + torch.randn(value.shape[1], generator=rng)


def some_columns(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    noisy = gaussian(1.0)(value, rng, batch)
    noisy[:, :3] = value[:, :3]
    return noisy


def student(value: Tensor, rng: torch.Generator, batch: MessageBatch) -> Tensor:
    return value + torch.sign(torch.randn(value.shape, generator=rng))  # standard deviation 1, no Gaussian


NOISE = both(lambda t: Additive(t, "gaussian", 1.0))
PLAIN_LIES: dict[str, Session] = {
    "silent noise": Session((), gaussian(0.05)),
    "silent grid": Session((), to_grid(0.05, 0.013)),
    "noise of 1.5 times the scale": Session(NOISE, gaussian(1.5)),
    "noise of 1 / 1.5 of the scale": Session(NOISE, gaussian(1 / 1.5)),
    "laplace of 1.5 times the scale": Session(both(lambda t: Additive(t, "laplace", 1.0)), laplace(1.5)),
    "laplace said to be gaussian": Session(NOISE, laplace(0.5**0.5)),
    "gaussian said to be laplace": Session(both(lambda t: Additive(t, "laplace", 0.5**0.5)), gaussian(1.0)),
    "signs said to be gaussian": Session(NOISE, student),
    "no noise where some is stated": Session(NOISE, None),
    "noise with a mean": Session(NOISE, then(gaussian(1.0), lambda v, g, b: v + 0.2)),
    "noise that grows with the value": Session(NOISE, by_value),
    "one noise for every row": Session(NOISE, one_row),
    "noise left out of some columns": Session(NOISE, some_columns),
    "noise left out by one client": Session(
        NOISE, lambda v, g, b: torch.where(one_client(in_place)(v.clone(), g, b) == v, gaussian(1.0)(v, g, b), v)
    ),
    "one noise for all rounds": Session(NOISE, Shared()),
    "noise correlated over rounds": Session(both(lambda t: Additive(t, "gaussian", math.sqrt(2))), TreeNoise()),
    "independent, said to be correlated": Session(
        both(lambda t: Additive(t, "gaussian", 1.0), lambda t: Correlated(t, BAND)),
        lambda v, g, b: gaussian(math.sqrt(2) if b.round else 1.0)(v, g, b),
    ),
    "in place": Session((), in_place),
    "in place, denied": Session((), in_place, admits=False),
    "unstated clip": Session((), clip(2.0)),
    "smaller clip": Session(both(lambda t: Clipped(t, "L2", 2.0)), clip(1.9)),
    "stated clip that is not done": Session(both(lambda t: Clipped(t, "L2", 2.0)), None),
    "clip in another norm": Session(both(lambda t: Clipped(t, "L2", 2.0)), clip(2.0, "l1")),
    "only in round 4": Session((), sometimes),
    "only one client": Session((), one_client(lambda v, g, b: v * 1.001)),
    "only one field": Session((), gaussian(0.1), on=("ModelUpdate",)),
    "rotation": Session((), rotated),
    "rotation below noise": Session(NOISE, then(rotated, gaussian(1.0))),
    "swapped rows": Session((), swapped),
    "swapped rows below noise": Session(both(lambda t: Additive(t, "gaussian", 0.1)), then(swapped, gaussian(0.1))),
    "other factor": Session(both(lambda t: Scaled(t, 0.0, 0.5)), lambda v, g, b: 0.51 * v),
    "grid of another step": Session(both(lambda t: Rounded(t, 0.3)), to_grid(0.25)),
    "coarser grid": Session(both(lambda t: Rounded(t, 0.3)), to_grid(0.6)),
    "nearest, said to be unbiased": Session(both(lambda t: Rounded(t, 0.7, stochastic=True)), to_grid(0.7)),
    "masks that do not cancel": Session((Masked(MODELS),), gaussian(1.0), on=("ModelUpdate",)),
    "stated of the other direction": Session((Additive(Field("ModelUpdate", direction="down"), "gaussian", 1.0),),
                                             gaussian(1.0), on=("ModelUpdate",)),
    "nothing sent": Session((), lambda v, g, b: torch.zeros_like(v)),
    "not a number": Session(NOISE, lambda v, g, b: v * math.nan),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN_LIES)
def test_a_lie_about_messages_is_unstated(name: str) -> None:
    lie = dataclasses.replace(PLAIN_LIES[name])
    assert caught(run(lie)) == set(lie.on)
    assert all(entry.why for entry in run(dataclasses.replace(PLAIN_LIES[name])).unstated)


def test_a_changed_list_of_nodes_is_unstated() -> None:
    class Renames(DefenseSession):
        def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
            payload = batch.payload
            return NeighborSums(payload.nodes.flip(0), payload.sums) if isinstance(payload, NeighborSums) else payload

    (entry,) = run(Renames()).unstated
    assert entry.target == Field("NeighborSums", "nodes", "up")


def test_editing_the_sender_in_place_behind_a_clean_copy_is_unstated() -> None:
    class Spoils(DefenseSession):
        def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
            if not isinstance(batch.payload, ModelUpdate) or bool((batch.senders == SERVER).any()):
                return batch.payload
            sent = ModelUpdate(batch.payload.vector.clone())
            batch.payload.vector.zero_()
            return sent

    assert caught(run(Spoils())) == {"ModelUpdate"}


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
