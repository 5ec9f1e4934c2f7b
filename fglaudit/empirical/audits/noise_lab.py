"""Noise as a defense really adds it: real messages in the clear, sent again and again through fresh bindings.

Every generator drives a binding of its own through the releases of a training, each with the same messages, from all
senders at once, in their real shapes. What is left when the message is subtracted is noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.empirical.audits.noise_tests import LARGEST_SEEN
from fglaudit.empirical.replays.message_stage import start_from
from fglaudit.empirical.replays.staging import Staged, about_noise, scaled_after
from fglaudit.facts import (
    K_ARY,
    Additive,
    Clipped,
    Correlated,
    Field,
    Masked,
    Memoised,
    Sampled,
    Scaled,
)
from fglaudit.facts.explaining import Expected
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.accounted import Noised

NUMBERS = 2**14
"""Numbers of one release, about."""
IN_ALL = 2**21
"""Numbers over all releases and generators."""
COLUMNS = 64
"""Of gradients."""
MOST_RELEASES = 120


@dataclass(frozen=True)
class Bench:
    """One noised thing on real inputs.

    Attributes:
        noise: what the account says.
        fact: what is stated of the noise.
        after: how noisy values are scaled, as stated.
        inputs: the messages of one release; gradients [E, K, D]; or clients' graphs.
        plain: whether nothing but a clip happens before the noise, so that noise is what is sent less the input where
            that is shorter than the clip.
        clip: that clip.
    """

    noise: Noised
    fact: Additive
    after: Scaled
    inputs: MessageBatch | Tensor | tuple[ClientGraph, ...]
    plain: bool
    clip: Clipped | None
    fields: tuple[str, ...] = ()

    def releases(self, generators: int) -> int:
        """Return how many releases are looked at."""
        size = max(1, self.values().numel())
        return max(2, min(self.noise.releases, MOST_RELEASES, IN_ALL // (size * generators)))

    def values(self) -> Tensor:
        """Return what gets noise [S, D]: of gradients their sum."""
        if isinstance(self.inputs, Tensor):
            return self.inputs.double().sum(0)
        if isinstance(self.inputs, MessageBatch):
            return _read(self.inputs.payload, self.fields)
        return torch.cat([rows.double().reshape(-1, rows.shape[-1]) for rows in self.entered()])

    def entered(self) -> list[Tensor]:
        """Return the tensors of the inputs that are noised: fields of a message, gradients, or clients' rows."""
        if isinstance(self.inputs, MessageBatch):
            return [self.inputs.payload.tensors()[name] for name in self.fields]
        return [self.inputs] if isinstance(self.inputs, Tensor) else [client.x for client in self.inputs]

    def given(self, tensors: Sequence[Tensor]) -> Bench:
        """Return the same with other tensors in the place of :meth:`entered`."""
        if isinstance(self.inputs, MessageBatch):
            named = self.inputs.payload.tensors() | dict(zip(self.fields, tensors, strict=True))
            payload = type(self.inputs.payload).from_tensors(named)
            return dataclasses.replace(self, inputs=dataclasses.replace(self.inputs, payload=payload))
        if isinstance(self.inputs, Tensor):
            return dataclasses.replace(self, inputs=tensors[0])
        rows = tuple(dataclasses.replace(c, x=x) for c, x in zip(self.inputs, tensors, strict=True))
        return dataclasses.replace(self, inputs=rows)

    def parts(self, values: Tensor) -> list[Tensor]:
        """Return ``values`` [S, D] as the tensors that get noise, one after the other."""
        entered = self.entered()
        if isinstance(self.inputs, Tensor):
            return [values]
        if isinstance(self.inputs, MessageBatch):
            found = torch.split(values, [field[0].numel() for field in entered], 1)
        else:
            found = torch.split(values, [rows.numel() // rows.shape[-1] for rows in entered])
        return [part.reshape(one.shape) for part, one in zip(found, entered, strict=True)]

    def moved(self, by: Tensor) -> Bench:
        """Return the same with inputs moved ``by`` [S, D]; of gradients those of the first loss."""
        parts = self.parts(by)
        if isinstance(self.inputs, Tensor):
            parts = [by * (torch.arange(len(self.inputs)) == 0)[:, None, None]]
        return self.given([one + part.to(one) for one, part in zip(self.entered(), parts, strict=True)])

    def clipped(self) -> Bench:
        """Return the same with inputs clipped as stated."""
        if self.clip is None:
            return self
        clip = dataclasses.replace(self.clip, around="zero")  # a release adds what was received

        def cut(entered: Tensor) -> Tensor:
            flat = entered.flatten(0, 1) if isinstance(self.inputs, Tensor) else entered
            return clip.applied(Expected.of(flat)).values.reshape(entered.shape).to(entered)

        return self.given([cut(one) for one in self.entered()])

    def at(self, size: float) -> Bench:
        """Return the same with inputs ``size`` times as long."""
        return self.given([size * one for one in self.entered()])

    def size_within(self) -> float:
        """Return by what inputs are multiplied so that no clip changes them."""
        if self.clip is None:
            return 1.0
        if isinstance(self.inputs, Tensor):
            longest = float(self.inputs.double().norm(dim=2).max())
        else:
            longest = float(self.values().abs().sum(1).max())  # no norm is larger than the L1 norm
        return 0.5 * self.clip.bound / max(longest, 1e-12)

    def resolution(self) -> float:
        """Return how far apart numbers in single precision are that carry noise, in scales of it."""
        start = 1.0 if self.clip is not None and self.clip.around == "received" else 0.0
        start += abs(self.after.offset / (self.after.factor or 1.0))
        longest = float((self.size_within() * self.values()).abs().max()) + start
        return 2.0**-23 * (longest / self.fact.scale + LARGEST_SEEN)

    def play(self, session: DefenseSession, release: int, rng: torch.Generator) -> Tensor:
        """Return what leaves the hook less what entered it [S, D], one release."""
        values = self.values()
        if isinstance(self.inputs, Tensor):
            return session.local_update(self.inputs.contiguous(), rng).double() - self.scaled(values)
        if not isinstance(self.inputs, MessageBatch):
            left = [session.prepare(c, rng).x.double().reshape(-1, c.x.shape[-1]) for c in self.inputs]
            return torch.cat(left) - self.scaled(values)
        batch = self.inputs
        kept = {name: value.clone() for name, value in batch.payload.tensors().items()}
        start: Tensor | float = 0.0
        if self.clip is not None and self.clip.around == "received" and isinstance(batch.payload, ModelUpdate):
            clients, width = int(batch.senders.max().item()) + 1, batch.payload.vector.shape[1]
            start = start_from(session, batch.round + release - 1, clients, width, rng).double()
            kept["vector"] += start
        payload = type(batch.payload).from_tensors(kept)
        sent_batch = MessageBatch(batch.round + release, batch.senders, batch.receivers, payload, batch.splits)
        seen = _read(session.release(sent_batch, rng), self.fields)
        return seen - self.scaled(values + start)

    def scaled(self, values: Tensor) -> Tensor:
        """Return ``values`` scaled as noisy ones are, as stated."""
        return self.after.offset + self.after.factor * values


def _read(payload: Payload, fields: Sequence[str]) -> Tensor:
    return torch.cat([payload.tensors()[name].double().flatten(1) for name in fields], 1)


def benches(
    staged: Staged, mechanisms: Sequence[Noised], clients: Sequence[ClientGraph], rng: torch.Generator
) -> tuple[list[Bench], list[str]]:
    """Return what can be looked at, and why the others cannot."""
    found: list[Bench] = []
    left_out: list[str] = []
    for noise in mechanisms:
        if noise.distribution == K_ARY:
            continue  # class reports have tests of their own
        made = _bench(staged, noise, clients, rng)
        if isinstance(made, Bench):
            found.append(made)
        else:
            left_out.append(made)
    return found, left_out


def _bench(staged: Staged, noise: Noised, clients: Sequence[ClientGraph], rng: torch.Generator) -> Bench | str:
    batch = staged.messages.get((noise.payload, noise.by_server))
    if batch is None and noise.payload not in ("rows", "gradients"):
        return f"no {noise.payload} was sent"
    about = about_noise(staged.facts, noise)
    after = scaled_after(about)
    additive = next((fact for fact in about if isinstance(fact, Additive)), None)
    if additive is None:
        return f"{noise.payload} is randomised otherwise than by adding noise"
    if tied := [type(fact).__name__ for fact in about if isinstance(fact, Masked | Memoised | Correlated)]:
        return f"noise on {noise.payload} depends on other noise, as {', '.join(tied)} states"
    if after is None:
        late = [type(fact).__name__ for fact in about[about.index(additive) + 1 :]]
        return (
            f"noise on {noise.payload} is changed afterwards, as {', '.join(late)} states, and no audit sees through"
            " that; do it to what arrives, in the protocol, and the noise is audited as it is"
        )
    before = about[: about.index(additive)]
    sampled = any(isinstance(fact, Sampled) for fact in before)
    clips = [fact for fact in before if isinstance(fact, Clipped)]
    plain = len(clips) == len([f for f in before if not isinstance(f, Sampled)]) and not sampled
    clip = min(clips, key=lambda fact: fact.bound, default=None)
    shared = {"noise": noise, "fact": additive, "after": after, "plain": plain, "clip": clip}
    if noise.payload == "rows":
        return Bench(**shared, inputs=_short(clients))  # type: ignore[arg-type]
    if noise.payload == "gradients":
        size = max((int(c.train.sum().item()) for c in clients), default=1)
        gradients = torch.randn(size, len(clients), COLUMNS, generator=rng)
        return Bench(**shared, inputs=0 * gradients if sampled else gradients)  # type: ignore[arg-type]
    assert batch is not None
    names = {f.target.name for f in about if isinstance(f, Additive) and isinstance(f.target, Field)}
    floating = [name for name, value in batch.payload.tensors().items() if value.is_floating_point()]
    fields = tuple(name for name in floating if "" in names or name in names)
    return Bench(**shared, inputs=_fewer(batch, fields), fields=fields)  # type: ignore[arg-type]


def _short(clients: Sequence[ClientGraph]) -> tuple[ClientGraph, ...]:
    """Return clients whose rows come to a few hundred, all if they are few."""
    kept: list[ClientGraph] = []
    rows = 0
    for client in clients:
        if kept and rows + client.x.numel() > 4 * NUMBERS:
            break
        kept.append(client)
        rows += client.x.numel()
    return tuple(kept)


def _fewer(batch: MessageBatch, fields: Sequence[str]) -> MessageBatch:
    """Return ``batch`` with some entries, of as many senders as possible; of a broadcast just one."""
    tensors = batch.payload.tensors()
    entry = sum(tensors[name][:1].numel() for name in fields)
    count = len(tensors[fields[0]])
    most = min(count, max(4, NUMBERS // max(1, entry)), 64)
    first = _read(batch.payload.select(torch.tensor([0])), fields)
    alike = bool((_read(batch.payload, fields) == first).all())
    if bool((batch.senders == SERVER).all()) and count > 1 and not batch.payload.ragged and alike:
        most = 1
    message = batch.entry_messages()
    senders = batch.senders[message]
    # The first entry of every sender, then the second, and so on.
    order = torch.argsort(senders, stable=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.bool), senders[order][1:] == senders[order][:-1]])
    turn = torch.zeros(count, dtype=torch.long)
    run = torch.arange(count)
    first_of = torch.where(starts, 0, run).cummax(0).values
    turn[order] = run - first_of
    chosen = torch.argsort(turn, stable=True)[:most]
    keep = torch.zeros(count, dtype=torch.bool)
    keep[chosen] = True
    return batch.select_entries(keep)
