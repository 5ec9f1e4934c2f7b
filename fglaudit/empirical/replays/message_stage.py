"""Messages with noise, sent by clients or by the server, replayed with values of the auditor's choice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.replays.stages import HUGE, WIDE, Pair, Stage, directions, worlds
from fglaudit.facts import Additive, Clipped, Fact, Field, before_noise, on
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload

NARROW = 3
"""Longest axis of a replayed message."""


@dataclass(frozen=True, kw_only=True)
class MessageStage(Stage):
    """One kind of message.

    Attributes:
        template: one real message of one entry, narrowed.
        fields: its fields that get noise.
        clip: what is stated of the message before the noise; None where it is made of clipped rows.
        clients: K.
        first: round of its first release.
    """

    template: Payload
    fields: tuple[str, ...]
    clip: Clipped | None
    clients: int
    first: int = 1

    @property
    def numbers(self) -> int:
        return self.width * self.noise.releases

    @property
    def width(self) -> int:
        """Numbers of one message that get noise."""
        return sum(self.template.tensors()[name].numel() for name in self.fields)

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        """Return values along a few directions: far beyond the clip, or at the stated distance where there is none."""
        if self.clip is None:
            own = "L2" if self.noise.distribution == "gaussian" else "L1"
            found = directions(self.width, rng, own)[:2]
            return [worlds(name, self.noise.sensitivity * v, turned=False) for name, v in found]
        turned = self.noise.sensitivity > 1.5 * self.clip.bound
        sizes = (HUGE, HUGE, WIDE, WIDE)
        return [
            worlds(f"{name}, {size:g} clips long", size * self.clip.bound * v, turned=turned)
            for size, (name, v) in zip(sizes, directions(self.width, rng, self.clip.norm), strict=False)
        ]

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        session = self.fresh()
        seen = torch.empty(copies, self.noise.releases, self.width, dtype=torch.float64)
        first = int(torch.randint(self.clients, (1,), generator=rng)) if self.alone else 0
        others = (first + torch.arange(copies)) % self.clients
        server = torch.full_like(others, SERVER)
        senders, receivers = (server, others) if self.noise.by_server else (others, server)
        values = given.expand(copies, -1) if given.dim() == 1 else given
        for release in range(self.noise.releases):
            start = self._start(session, self.first + release, rng)
            sent = values if start is None else values + start
            batch = message_batch(self.first + release, senders, receivers, self.payload(sent))
            released = session.release(batch, rng)
            seen[:, release] = self.read(released) - (0 if start is None else start)
        return seen

    def _start(self, session: DefenseSession, round: int, rng: torch.Generator) -> Tensor | None:
        """Return the model [C] from which clients start, sent by the server; None where a clip is around zero."""
        if self.clip is None or self.clip.around != "received" or type(self.template) is not ModelUpdate:
            return None
        return start_from(session, round - 1, self.clients, self.width, rng).double()

    def payload(self, values: Tensor) -> Payload:
        """Return messages with ``values`` [P, C] in the fields that get noise."""
        kept = {n: v.expand(len(values), *v.shape[1:]).clone() for n, v in self.template.tensors().items()}
        done = 0
        for name in self.fields:
            one = self.template.tensors()[name]
            kept[name] = values[:, done : done + one.numel()].reshape(-1, *one.shape[1:]).to(one)
            done += one.numel()
        return type(self.template).from_tensors(kept)

    def read(self, payload: Payload) -> Tensor:
        """Return the values [P, C] of the fields that get noise."""
        return torch.cat([payload.tensors()[name].double().flatten(1) for name in self.fields], 1)


def start_from(session: DefenseSession, round: int, clients: int, width: int, rng: torch.Generator) -> Tensor:
    """Return the model [C] that the server sends all ``clients`` in ``round``, from which they start."""
    model, receivers = torch.linspace(-1, 1, width), torch.arange(clients)
    sent = ModelUpdate(model.expand(clients, -1))
    session.release(message_batch(round, torch.full_like(receivers, SERVER), receivers, sent), rng)
    return model


def message_batch(round: int, senders: Tensor, receivers: Tensor, payload: Payload) -> MessageBatch:
    """Return messages of one entry each."""
    splits = torch.arange(len(senders) + 1) if payload.ragged else None
    return MessageBatch(round, senders, receivers, payload, splits)


def narrowed_entry(payload: Payload) -> Payload:
    """Return the first entry with at most ``NARROW`` places along every other axis of floating-point fields."""
    short = {}
    for name, value in payload.tensors().items():
        one = value[:1]
        for axis in range(1, one.dim() if one.is_floating_point() else 1):
            one = one.narrow(axis, 0, min(NARROW, one.shape[axis]))
        short[name] = one.clone()
    return type(payload).from_tensors(short)


def noised_fields(facts: Sequence[Fact], payload: Payload, *, by_server: bool) -> tuple[str, ...]:
    """Return the fields of ``payload`` that are said to get noise."""
    about = on(facts, type(payload), direction="down" if by_server else "up")
    named = [f.target.name for f in about if isinstance(f, Additive) and isinstance(f.target, Field)]
    floating = [name for name, value in payload.tensors().items() if value.is_floating_point()]
    return tuple(floating) if "" in named else tuple(name for name in floating if name in named)


def clip_of(facts: Sequence[Fact], payload: type[Payload], *, by_server: bool) -> Clipped | None:
    """Return the clip of a message before its noise, for all fields of it together: the largest norm that is stated."""
    about = before_noise(on(facts, payload, direction="down" if by_server else "up"))
    clips = [fact for fact in about if isinstance(fact, Clipped) and fact.per != "example"]
    if not clips:
        return None
    named = {fact.target.name for fact in clips if isinstance(fact.target, Field)}
    if len(named) <= 1 or clips[0].norm == "elementwise":
        return clips[0]
    each = [fact.bound for fact in clips]
    joint = math.fsum(each) if clips[0].norm == "L1" else math.sqrt(math.fsum(b * b for b in each))
    return dataclasses.replace(clips[0], bound=joint)


@dataclass(frozen=True, kw_only=True)
class MeanStage(Stage):
    """A mean of clients' models to which the server adds noise: a client's clipped change, the mean, the noise.

    Replays stand beside one another in one long model, of which every number must get noise of its own: all receivers
    may get the same.

    Attributes:
        clip: of a client's change.
        share: largest weight of a client in the mean.
        clients: K.
    """

    clip: Clipped
    share: float
    clients: int
    changes: bool

    WIDTH = 3

    @property
    def numbers(self) -> int:
        return self.WIDTH * self.noise.releases

    def pairs(self, rng: torch.Generator) -> Sequence[Pair]:
        turned = self.noise.sensitivity > 1.5 * self.clip.bound * self.share
        sizes = (HUGE, HUGE, WIDE)
        return [
            worlds(f"{name}, {size:g} clips long", size * self.clip.bound * v, turned=turned)
            for size, (name, v) in zip(sizes, directions(self.WIDTH, rng, self.clip.norm), strict=False)
        ]

    def side_by_side(self, given: Tensor, copies: int, rng: torch.Generator) -> Tensor:
        session = self.fresh()
        clients = torch.arange(self.clients)
        server = torch.full_like(clients, SERVER)
        # The clip is of a whole message: it is asked for one replay's numbers, the noise for all replays'.
        start = start_from(session, 0, self.clients, self.WIDTH, rng)
        model = start if not self.changes else torch.zeros_like(start)
        upload = ModelUpdate(torch.where(clients[:, None] == 0, given.float(), torch.zeros(1)) + model)
        sent = session.release(MessageBatch(1, clients, server, upload), rng)
        assert isinstance(sent, ModelUpdate)
        mean = start.double() + self.share * (sent.vector[0].double() - model.double())
        whole = mean.float().repeat(copies).expand(self.clients, -1)
        seen = torch.empty(copies, self.noise.releases, self.WIDTH, dtype=torch.float64)
        for release in range(self.noise.releases):
            got = session.release(MessageBatch(1 + release, server, clients, ModelUpdate(whole)), rng)
            assert isinstance(got, ModelUpdate)
            seen[:, release] = got.vector[0].double().view(copies, self.WIDTH)
        return seen
