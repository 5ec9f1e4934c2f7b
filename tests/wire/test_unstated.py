"""Observed, not believed: every planted lie about messages is ``Unstated``."""

from __future__ import annotations

import math

import pytest
import torch
from observed_changes import (
    BAND,
    MODELS,
    NOISE,
    Change,
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
from observed_runs import caught
from torch import Tensor

from fglaudit.facts import (
    Additive,
    Clipped,
    Correlated,
    Field,
    Masked,
    Rounded,
    Scaled,
)
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, NeighborSums, Payload


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
    """Turn every block of 24 numbers: hooks are asked hundreds of times, and a basis of 1200 takes 0.2 s to draw."""
    basis = torch.linalg.qr(torch.randn(24, 24, generator=rng)).Q
    turned: Tensor = (value.view(len(value), -1, 24) @ basis).view_as(value)
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
    lie = PLAIN_LIES[name]
    channel = run(lie)
    assert caught(channel) == set(lie.on)
    assert all(entry.why for entry in channel.unstated)


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
