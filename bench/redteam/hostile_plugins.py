"""Defenses that state noise and are none: what a hostile or naive author might write in a plugin file of their own.

Each states Gaussian noise on what clients upload, and what leaves looks like that at a glance; who knows the code (the
defense is public) reads the rows all the same. No report may call any of them "held", whatever attacks here get.
A suite names one as ``{name: "bench/redteam/hostile_plugins.py:Hostile", kind: seeded-once}``. Those that state
nothing are in ``bench/obfuscation/obfuscated.py``.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, Clipped, Fact, Field, Memoised, Randomised, Rounded, Scaled, Sealed
from fglaudit.facts.explaining import Expected
from fglaudit.facts.targets import ROWS
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.mechanism import clip_rows
from fglaudit.rng import derive, split

SESSIONS: Counter[Hostile] = Counter()
"""Sessions in this process of every setting: the first one is trained under, later ones are rehearsals and audits."""


def _normal(shape: torch.Size, rng: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=rng)


@dataclass
class Moment:
    """What a rule may use: the values [n, D] it hides, their batch, the run's generator, and its session."""

    values: Tensor
    batch: MessageBatch
    rng: torch.Generator
    session: HostileSession

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    def fresh(self) -> Tensor:
        """Return honest standard normal noise."""
        return _normal(self.shape, self.rng)


def _near(m: Moment) -> Tensor:
    """One row in twenty has hardly any noise."""
    few = (torch.arange(len(m.values)) % 20 == 7).double()[:, None]
    return m.fresh() * (1 - 0.999 * few).float()


def _halves(m: Moment) -> Tensor:
    """Two rows far from each other share their noise."""
    half = (len(m.values) + 1) // 2
    return _normal(torch.Size((half, m.shape[1])), m.rng).repeat(2, 1)[: len(m.values)]


def _third(m: Moment) -> Tensor:
    """The noise of every third row is made of those of the two before it."""
    noise = m.fresh()
    stop = len(noise) - len(noise) % 3
    noise[2:stop:3] = (noise[0:stop:3] - noise[1:stop:3]) / math.sqrt(2)
    return noise


def _by_values(m: Moment) -> Tensor:
    """A row seeds its own noise: equal rows are sent alike, and a guess can be confirmed."""
    return torch.cat([_normal(row[None].shape, derive(1, repr(row.tolist()))) for row in m.values])


def _turned(m: Moment) -> Tensor:
    """In place of noise, earlier values under a rotation that everybody can draw."""
    first = m.session.kept.setdefault("first", m.values.double())
    rotation = torch.linalg.qr(_normal(torch.Size((m.shape[1],) * 2), derive(2, "turn")).double())[0]
    centred = (first - first.mean(0)) @ rotation
    hidden = centred / centred.std().clamp(min=1e-9)
    return (0.9 * hidden.float() + math.sqrt(1 - 0.81) * m.fresh()) if hidden.shape == m.shape else m.fresh()


def _again(m: Moment) -> Tensor:
    """Noise of the round before last comes again with the other sign."""
    kept = m.session.kept
    noise = m.fresh()
    turn = kept["turn"] = kept.get("turn", torch.zeros(1)) + 1
    key = f"noise {int(turn.item()) % 2} {tuple(m.shape)}"
    if key in kept:
        return -kept.pop(key)
    kept[key] = noise
    return noise


def _without_a_direction(m: Moment) -> Tensor:
    """Noise that leaves one direction of rows alone."""
    bare = torch.ones(m.shape[1]) / math.sqrt(m.shape[1])
    noise = m.fresh()
    return noise - (noise @ bare)[:, None] * bare


def _audited() -> bool:
    """Whether anybody but the training itself calls."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_code.co_filename
        if any(part in name for part in ("/empirical/", "rehearsal.py", "/attacks/", "/scoring/")):
            return True
    return False


Rule = Callable[[Moment], Tensor]
NOISE: dict[str, Rule] = {
    "seeded-once": lambda m: _normal(m.shape, derive(3, "always")),
    "seeded-by-round": lambda m: _normal(m.shape, derive(3, m.batch.round, type(m.batch.payload).__name__)),
    "seeded-by-values": _by_values,
    "steps": lambda m: (m.fresh() * 64).round() / 64,
    "fine-steps": lambda m: (m.fresh() * 2**12).round() / 2**12,
    "halves": _halves,
    "third": _third,
    "near-exact": _near,
    "bare-direction": _without_a_direction,
    "exact-rows": lambda m: m.fresh() * (torch.arange(len(m.values)) % 10 != 3).float()[:, None],
    "first-session": lambda m: m.fresh() if m.session.number else _normal(m.shape, derive(4, m.batch.round)),
    "honest-at-first": lambda m: m.fresh() if m.session.turn < 1 else _normal(m.shape, derive(4, m.batch.round)),
    "unless-audited": lambda m: m.fresh() if _audited() else _normal(m.shape, derive(4, m.batch.round)),
    "by-the-clock": lambda m: _normal(m.shape, torch.Generator().manual_seed(time.time_ns())),
    "undone-later": _again,
    "earlier-values": _turned,
}
"""Noise that is stated, and is not what is stated."""


HONEST: dict[str, Rule] = {
    "honest": lambda m: m.fresh(),
    "own-stream": lambda m: _normal(m.shape, split(m.rng, "noise")),
    "backwards": lambda m: m.fresh().flip(0).flip(-1),
    "wide-draw": lambda m: _normal(torch.Size((len(m.values) + 3, m.shape[1])), m.rng)[: len(m.values)],
    "by-quantiles": lambda m: torch.special.ndtri(
        torch.rand(m.shape, generator=m.rng, dtype=torch.double).clamp(1e-15, 1 - 1e-15)
    ).float(),
}
"""What is stated, drawn in other ways: nobody may be accused of these."""


class _Quiet(Additive):
    """An author's own kind of noise, which explains whatever it is asked about."""

    def applied(self, expected: Expected) -> Expected:
        return replace(expected, opaque="my own noise")


def _rotated(m: Moment) -> Tensor:
    turn = torch.linalg.qr(_normal(torch.Size((m.shape[1],) * 2), derive(5, "turn")).double())[0]
    turned: Tensor = m.values.double() @ turn
    return turned.to(m.values)


MAPS: dict[str, Callable[[Field, float], tuple[Fact, ...]]] = {
    "own-fact": lambda field, std: (_Quiet(field, "gaussian", std),),
    "own-randomiser": lambda field, std: (Randomised(field, "mine"),),
    "said-sealed": lambda field, std: (Sealed(field, "bfv"),),
    "said-rounded": lambda field, std: (Rounded(field, step=1e6, stochastic=True),),
    "said-scaled": lambda field, std: (Scaled(field, factor=1e-9),),
    "said-memoised": lambda field, std: (Additive(field, "gaussian", std), Memoised(field)),
    "said-when-asked": lambda field, std: (Randomised(field, "mine"),) if _released() else (),
}
"""A fixed rotation, and what is said of it."""


def _released() -> bool:
    """Whether facts are asked for while messages are sent."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "send":
            return True
    return False


KINDS = (*NOISE, *MAPS, "rows-seeded", "rows-shared")


@dataclass(frozen=True)
class Hostile(Defense):
    """Plant one of the kinds on the floating-point fields that clients send of ``on``.

    Attributes:
        std: of the noise that is stated.
        by_server: plant it on what the server sends instead.
        clip: L2 norm that rows are scaled down to; an epsilon is then promised. None: neither.
    """

    name: ClassVar[str] = "hostile"
    shown: ClassVar[tuple[str, ...]] = ("kind",)

    kind: str = "seeded-once"
    on: str = "NeighborSums"
    std: float = 5.0
    by_server: bool = False
    clip: float | None = None

    def bind(self, context: Context) -> DefenseSession:
        number = SESSIONS[self]
        SESSIONS[self] += 1
        return (RowsSession if self.kind.startswith("rows-") else HostileSession)(self, number)

    def weakened(self, factor: float) -> Hostile:
        return replace(self, std=self.std * factor)


class HostileSession(DefenseSession):
    number: int
    turn: int

    def __init__(self, defense: Hostile, number: int) -> None:
        self.defense, self.number = defense, number
        self.turn = -1
        self.kept: dict[str, Tensor] = {}

    def changes(self, payload: type[Payload]) -> bool:
        return payload.__name__ == self.defense.on

    def facts(self) -> tuple[Fact, ...]:
        return (*self._clipped(), *self._noise())

    def _clipped(self) -> tuple[Fact, ...]:
        return () if self.defense.clip is None else (Clipped(ROWS, "L2", self.defense.clip, "row"),)

    def _noise(self) -> tuple[Fact, ...]:
        field = Field(self.defense.on, "", "down" if self.defense.by_server else "up")
        if self.defense.kind in MAPS:
            return MAPS[self.defense.kind](field, self.defense.std)
        return (Additive(field, "gaussian", self.defense.std),)

    def guarantee(self) -> Guarantee:
        if self.defense.clip is None:
            return Guarantee()
        relation = Relation.ZERO_OUT
        return Guarantee(
            "noise", epsilon_claimed=8.0, delta=1e-5, unit="node", relation=relation,
            adjacency=relation.of("one node's feature row"),
        )  # fmt: skip

    def prepares(self) -> bool:
        return self.defense.clip is not None

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        clip = self.defense.clip
        return client if clip is None else replace(client, x=clip_rows(client.x, clip))

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        by_server = bool((batch.senders == SERVER).all())
        if not self.changes(type(batch.payload)) or by_server is not self.defense.by_server:
            return batch.payload
        self.turn += 1
        sent = batch.payload.tensors()
        rule = {**NOISE, **HONEST}.get(self.defense.kind, _rotated)
        for name, value in sent.items():
            if value.is_floating_point():
                moment = Moment(value.reshape(len(value), -1), batch, rng, self)
                if self.defense.kind in MAPS:
                    sent[name] = _rotated(moment).reshape(value.shape)
                else:
                    sent[name] = value + self.defense.std * rule(moment).reshape(value.shape)
        return type(batch.payload).from_tensors(sent)


class RowsSession(HostileSession):
    """The same on the rows that clients start from."""

    def changes(self, payload: type[Payload]) -> bool:
        return False

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        return batch.payload

    def _noise(self) -> tuple[Fact, ...]:
        return (Additive(ROWS, "gaussian", self.defense.std),)

    def prepares(self) -> bool:
        return True

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        client = super().prepare(client, rng)
        seeded = self.defense.kind == "rows-seeded"
        noise = _normal(client.x.shape, derive(6, client.client) if seeded else rng)
        if not seeded:
            noise = noise[: (len(noise) + 1) // 2].repeat(2, 1)[: len(noise)]
        return replace(client, x=client.x + self.defense.std * noise)
