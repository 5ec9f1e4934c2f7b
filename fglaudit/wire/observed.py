"""Observed, not believed (rule 11): compares what enters a defense's hooks with what leaves them.

Whatever changes without a fact that explains it is :class:`fglaudit.facts.Unstated`: for the scorer alone. A hook that
a defense does not override is not watched, so that a run without a defense costs nothing. All values are compared, in
parts of ``_PART`` at a time; of sealed messages about ``_OPENED`` values per payload and round are opened again. Random
numbers of the run are never drawn here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest

import torch
from torch import Tensor

from fglaudit.explaining import ROUNDOFF, Expected, noise_in, unexplained
from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    Correlated,
    Fact,
    Field,
    KeptColumns,
    Masked,
    Memoised,
    Randomised,
    Rounded,
    Sampled,
    Sealed,
    Target,
    Unstated,
    first,
    on,
)
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload, is_repeated
from fglaudit.residuals import Shape, Spending
from fglaudit.rng import derive
from fglaudit.wire.asked_again import Stated
from fglaudit.wire.observed_graph import changed_edges, changed_groups, same
from fglaudit.wire.observed_seals import strange_seal

_PART = 2**22
_OPENED = 2**19
_OPENED_ONCE = 2**23
"""Before training, where payloads are sent a single time."""
_ROW_COST = 2048
"""Values that opening one row costs at least."""
_POOLED = 2**15
"""Small comparisons, of few rows or rounds, are made once more together, when so many values have come together."""
_COLUMNS = 512
"""Of a gradient, where examples are sampled and the sample must be projected out."""
Noise = tuple[Tensor, Tensor, Shape] | None


class Observed:
    """Watches one session during one run.

    Attributes:
        unstated: changes that no fact explains, one per target.
    """

    def __init__(self, session: DefenseSession) -> None:
        self.session = session
        self.spending = Spending()
        self._found: dict[Target, str] = {}
        self._received: dict[str, tuple[Tensor, Tensor]] = {}
        self._opened: dict[str, tuple[int, int]] = {}
        self._pools: dict[tuple[Target, int, tuple[Fact, ...]], list[tuple[Tensor, Tensor, Tensor | None]]] = {}
        self._rng = derive(0, "observed messages")
        self._facts: tuple[Fact, ...] | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the session states; other facts than at first are noted and not believed. Who drops out is drawn."""
        stated = tuple(self.session.facts())
        if self._facts is None or stated is self._facts:
            self._facts = stated
        elif any(repr(a) != repr(b) for a, b in zip_longest(_lasting(stated), _lasting(self._facts))):
            self._note(ROWS, "what is stated changed during the run")
            return self._facts
        return stated

    def accuse(self, found: Mapping[Target, str]) -> None:
        """Note what is wrong with what a hook draws, by target."""
        for target, why in found.items():
            self._note(target, why)

    def stated_rows(self, client: ClientGraph) -> tuple[Stated, ...]:
        """Return what is stated of a client's rows [n, ..., F]."""
        facts, width = tuple(f for f in self.facts if f.target == ROWS), client.x.shape[-1]

        def noise(before: Tensor, after: Tensor) -> Noise:
            return noise_in(_applied(Expected.of(before.reshape(-1, width)), facts), after.reshape(-1, width))

        return (Stated(ROWS, "x", facts, noise),)

    def stated_update(self) -> tuple[Stated, ...]:
        """Return what is stated of the sum [K, D] of gradients [E, K, D]."""
        facts = tuple(f for f in self.facts if f.target == GRADIENTS)
        rest = tuple(f for f in facts if not (isinstance(f, Clipped) and f.per == "example"))

        sampled = any(isinstance(fact, Sampled) for fact in facts)
        rest = tuple(fact for fact in rest if not isinstance(fact, Sampled))

        def noise(gradients: Tensor, after: Tensor) -> Noise:
            total, size = self.expected_update(gradients)
            loose = 16 * ROUNDOFF.get(gradients.dtype, 0.0) * size.double()
            if sampled:
                if (outside := _outside(total, after)) is None:
                    return None
                total, after, loose = torch.zeros_like(outside[0]), *outside
            start = Expected.of(total)
            return noise_in(_applied(dataclasses.replace(start, slack=start.slack + loose), rest), after)

        return (Stated(GRADIENTS, "gradients", facts, noise, comparable=not sampled),)

    def stated_fields(self, batch: MessageBatch) -> tuple[Stated, ...]:
        """Return what is stated of the floating-point fields of ``batch``, by direction."""
        found = []
        for direction, part in _directions(batch):
            for name, value in batch.payload.tensors().items():
                if not value.is_floating_point():
                    continue
                facts = self._about(batch, name, direction)
                target = Field(type(batch.payload).__name__, name, direction)
                found.append(Stated(target, name, facts, self._noise(batch, facts, part), part))
        return tuple(found)

    def _noise(
        self, batch: MessageBatch, facts: tuple[Fact, ...], part: Tensor | None
    ) -> Callable[[Tensor, Tensor], Noise]:
        around = any(isinstance(f, Clipped) and f.around == "received" for f in facts)

        def noise(before: Tensor, after: Tensor) -> Noise:
            received = self._last(type(batch.payload).__name__, batch) if around else None
            if received is not None:
                received = (received if part is None else received[part])[: len(before)]
            return noise_in(_applied(Expected.of(before, received, batch.round), facts), after)

        return noise

    def _about(self, batch: MessageBatch, name: str, direction: str) -> tuple[Fact, ...]:
        """Return the facts about the values of a field that leave in one direction."""
        about = on(self.facts, type(batch.payload), name, direction)
        stated = (f for f in about if isinstance(f.target, Field) and f.target.since <= batch.round)
        return tuple(f for f in stated if not isinstance(f, Sealed | Absent))

    @property
    def unstated(self) -> tuple[Unstated, ...]:
        for key in list(self._pools):
            self._flush(key)
        _ = self.facts  # asked once more
        return tuple(Unstated(target, why) for target, why in self._found.items())

    def watches(self, hook: str) -> bool:
        """Whether the session overrides ``hook``."""
        return getattr(getattr(self.session, hook), "__func__", None) is not getattr(DefenseSession, hook)

    def prepared(self, before: ClientGraph, after: ClientGraph) -> None:
        """Compare a client's graph, copied before, with the prepared one."""
        facts = self.facts
        if (why := changed_edges(before, after, facts)) is not None:
            self._note(EDGES, why)
        others = ("nodes", "y", "train", "val", "test")
        changed = [name for name in others if not same(getattr(before, name), getattr(after, name))]
        if changed or before.client != after.client:
            self._note(ROWS, f"{', '.join(changed) or 'client'} of a client changed")
        stated = [fact for fact in facts if fact.target == ROWS]
        if before.x.shape != after.x.shape or before.x.dtype != after.x.dtype:
            self._note(ROWS, f"rows of shape {tuple(before.x.shape)} became {tuple(after.x.shape)}")
        elif stated or not same(before.x, after.x):
            width = before.x.shape[-1]
            self._compare(ROWS, stated, before.x.reshape(-1, width), after.x.reshape(-1, width), None, 0)

    def merged(self, center: Tensor, neighbor: Tensor, groups: Tensor) -> None:
        """Compare groups of cross-client edges [E] with those stated."""
        if (why := changed_groups(center, neighbor, groups, self.facts)) is not None:
            self._note(EDGES, why)

    def expected_update(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum [K, D] that the facts on single examples make of ``gradients`` [E, K, D], and its slack; for
        sampled ones instead the examples [E, K, D'] of some columns."""
        stated = [fact for fact in self.facts if fact.target == GRADIENTS]
        scale = gradients.new_ones(gradients.shape[:2])
        for fact in stated:
            if isinstance(fact, Clipped) and fact.per == "example" and fact.norm != "elementwise":
                norm = torch.linalg.vector_norm(gradients, ord=2 if fact.norm == "L2" else 1, dim=2) * scale
                scale = scale * torch.where(norm.isfinite(), fact.bound / norm.clamp(min=fact.bound), 0.0)
        if bool((scale == 0).any()):
            gradients = torch.where((scale > 0).unsqueeze(2), gradients, 0.0)
        if any(isinstance(fact, Sampled) for fact in stated):
            return gradients[:, :, _spread(gradients.shape[2])] * scale.unsqueeze(2), scale
        total = torch.einsum("ek,ekd->kd", scale, gradients)
        size = torch.linalg.vector_norm(scale.unsqueeze(2) * gradients, dim=0) if len(gradients) else total.abs()
        return total, size * len(gradients) ** 0.5

    def updated(self, expected: tuple[Tensor, Tensor], after: Tensor) -> None:
        """Compare what a local step uses [K, D] with :meth:`expected_update`, made before the hook ran."""
        facts = [fact for fact in self.facts if fact.target == GRADIENTS]
        sampled = next((fact for fact in facts if isinstance(fact, Sampled)), None)
        rest = [f for f in facts if not isinstance(f, Sampled) and not (isinstance(f, Clipped) and f.per == "example")]
        total, size = expected
        if sampled is not None:
            self._without_sample(total, after, rest)
            return
        if total.shape != after.shape:
            self._note(GRADIENTS, f"a sum of shape {tuple(total.shape)} became {tuple(after.shape)}")
        elif rest or not same(total, after):
            loose = 16 * ROUNDOFF.get(after.dtype, 0.0) * size.double()
            self._compare(GRADIENTS, rest, total, after, None, 0, slack=loose)

    def _without_sample(self, examples: Tensor, after: Tensor, facts: list[Fact]) -> None:
        """Compare what no sample of ``examples`` [E, K, D'] can account for: the part of ``after`` that is orthogonal
        to all of them, in an orthonormal basis, so that independent noise stays so."""
        if (outside := _outside(examples, after)) is None:
            return  # every value could be a sample's
        left, loose = outside
        self._compare(GRADIENTS, facts, torch.zeros_like(left), left, None, 0, slack=loose)

    def released(self, before: MessageBatch, tensors: dict[str, Tensor], after: Payload) -> None:
        """Compare what entered ``release``, with fields copied before, with the payload that left."""
        kind = type(before.payload)
        if type(after) is not kind:
            self._note(Field(kind.__name__), f"{kind.__name__} became {type(after).__name__}")
            return
        left = after.tensors()
        for direction, part in _directions(before):
            for name, value in tensors.items():
                if left[name] is not (entered := before.payload.tensors()[name]) and not same(value, entered):
                    self._note(Field(kind.__name__, name, direction), "the sender's own values were edited in place")
                self._field(before, name, direction, value, left[name], part)
        self.arrived(dataclasses.replace(before, payload=after))

    def arrived(self, batch: MessageBatch) -> None:
        """Remember what the server's message brings its receivers, where their changes to it are clipped."""
        kind = type(batch.payload)
        around = any(isinstance(f, Clipped) and f.around == "received" for f in on(self.facts, kind))
        if around and bool((batch.senders == SERVER).all()):
            self._remember(kind.__name__, batch.receivers, batch.payload)

    def _field(
        self,
        batch: MessageBatch,
        name: str,
        direction: str,
        before: Tensor,
        after: Tensor,
        part: Tensor | None,
    ) -> None:
        kind = type(batch.payload)
        target = Field(kind.__name__, name, direction)
        if before.shape != after.shape or before.dtype != after.dtype:
            self._note(target, f"{tuple(before.shape)} of {before.dtype} became {tuple(after.shape)} of {after.dtype}")
            return
        stated = self._about(batch, name, direction) if before.is_floating_point() else ()
        if not stated and same(before, after):
            return
        if not before.is_floating_point():
            self._note(target, "numbers that are no values changed")
            return
        received = None
        if is_repeated(before) and is_repeated(after):
            before, after, part = before[:1], after[:1], None
        elif any(isinstance(f, Clipped) and f.around == "received" for f in stated):
            received = self._last(kind.__name__, batch)
        if part is not None:
            before, after, received = before[part], after[part], None if received is None else received[part]
        self._compare(target, stated, before, after, received, batch.round)

    def sealed(self, before: MessageBatch, after: MessageBatch) -> None:
        """Compare whose messages entered ``seal`` and left it: senders that are missing must be stated."""
        kind = type(before.payload)
        target = Field(kind.__name__, "", "up")
        there = torch.isin(_codes(before), _codes(after))
        absent = torch.unique(before.senders[~there])
        stated = [fact for fact in on(self.facts, kind, "", "up") if isinstance(fact, Absent)]
        if len(absent) and not any(fact.missing(absent, torch.unique(before.senders)) for fact in stated):
            self._note(target, f"messages of {len(absent)} of {len(before.senders)} senders are missing")
        if type(after.payload) is not kind or not same(_codes(after), _codes(before)[there]):
            self._note(target, "sealing changed the kind of a message, its sender or its receiver")

    def opened(self, before: MessageBatch, opened: MessageBatch) -> None:
        """Compare sealed messages that were opened again with what entered ``seal``, of which they may be a part."""
        target = Field(type(before.payload).__name__, "", "up")
        if target in self._found:
            return
        part = before.select(torch.isin(_codes(before), _codes(opened)))
        stated = first(on(self.facts, type(before.payload), "", "up"), Sealed)
        if (why := strange_seal(part, opened, stated)) is not None:
            self._note(target, why)

    def to_open(self, batch: MessageBatch, readable: Tensor) -> Tensor:
        """Return which sealed messages [P] to open besides those that are anyway: at random, as many as the round's
        share allows, at least one a round."""
        rows = torch.ones(len(batch.senders), dtype=torch.long) if batch.splits is None else batch.splits.cpu().diff()
        width = sum(v[:1].numel() for v in batch.payload.tensors().values())
        name, most = type(batch.payload).__name__, _OPENED if batch.round else _OPENED_ONCE
        round, spent = self._opened.get(name, (-1, 0))
        cost = rows * max(width, _ROW_COST)
        spent = (spent if round == batch.round else 0) + int(cost[readable].sum())
        order = torch.randperm(len(rows), generator=self._rng)
        order = order[~readable[order]]
        total = cost[order].cumsum(0) + spent
        few = total <= most
        if spent == 0:
            few[:1] = True
        self._opened[name] = (batch.round, int(total[few][-1]) if bool(few.any()) else spent)
        codes = _codes(batch)
        return torch.isin(codes, codes[order[few]]) & ~readable

    def _compare(
        self,
        target: Target,
        facts: Iterable[Fact],
        before: Tensor,
        after: Tensor,
        received: Tensor | None,
        round: int,
        slack: Tensor | None = None,
    ) -> None:
        if target in self._found or before.numel() == 0:
            return
        facts, step = tuple(facts), max(1, _PART * len(before) // before.numel())
        whole = any(isinstance(fact, Masked | Correlated | Sampled) for fact in facts)
        step = len(before) if whole else step
        for low in range(0, len(before), step):
            part = slice(low, low + step)
            expected = Expected.of(before[part], None if received is None else received[part], round)
            if slack is not None:
                expected = dataclasses.replace(expected, slack=expected.slack + slack[part])
            expected = _applied(expected, facts)
            if (why := unexplained(expected, after[part], self.spending, (target, low))) is not None:
                self._note(target, f"round {round}: {why}")
                return
        random = any(isinstance(fact, Additive | Randomised | Rounded) for fact in facts)
        random = random and not any(isinstance(fact, Memoised) for fact in facts)  # whose noise is used twice
        if random and not whole and slack is None and before.numel() < _POOLED:
            self._pool(target, facts, before, after, received)

    def _pool(
        self, target: Target, facts: tuple[Fact, ...], before: Tensor, after: Tensor, received: Tensor | None
    ) -> None:
        flat = [None if t is None else t.reshape(len(before), -1).clone() for t in (before, after, received)]
        entered, left, start = flat
        assert entered is not None and left is not None
        width = before.shape[-1] if any(_by_row(fact) for fact in facts) else 0
        if width and before.dim() > 2:
            return  # rows within messages; those have many values
        key = (target, entered.shape[1], facts)
        pool = self._pools.setdefault(key, [])
        pool.append((entered, left, start))
        if sum(part[0].numel() for part in pool) >= _POOLED:
            self._flush(key)

    def _flush(self, key: tuple[Target, int, tuple[Fact, ...]]) -> None:
        target, _, facts = key
        parts = self._pools.pop(key)
        if target in self._found or len(parts) < 2:
            return
        starts = [part[2] for part in parts if part[2] is not None]
        expected = Expected.of(
            torch.cat([part[0] for part in parts]), torch.cat(starts) if len(starts) == len(parts) else None
        )
        for fact in facts:
            expected = fact.applied(expected)
        why = unexplained(expected, torch.cat([part[1] for part in parts]), self.spending)
        if why is not None and len(starts) in (0, len(parts)):
            self._note(target, f"over {len(parts)} messages: {why}")

    def _remember(self, name: str, receivers: Tensor, payload: Payload) -> None:
        (value,) = payload.tensors().values()
        kept = value[:1].clone().expand_as(value) if is_repeated(value) else value.clone()
        self._received[name] = (receivers.cpu(), kept)

    def _last(self, name: str, batch: MessageBatch) -> Tensor | None:
        if name not in self._received:
            return None
        receivers, value = self._received[name]
        order = receivers.argsort()
        place = torch.searchsorted(receivers[order], batch.senders.cpu()).clamp(max=len(order) - 1)
        return value[order[place].to(value.device)]

    def _note(self, target: Target, why: str) -> None:
        self._found.setdefault(target, why)


def _outside(examples: Tensor, after: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the part of ``after`` [K, D] that no sum of ``examples`` [E, K, D'] accounts for, in an orthonormal basis
    [K, D' - E], and its slack; None where there is none."""
    count, _, width = examples.shape
    if width <= count:
        return None
    basis = torch.linalg.qr(examples.double().permute(1, 2, 0), mode="complete").Q[:, :, count:]
    outside = torch.einsum("kdf,kd->kf", basis, after[:, _spread(after.shape[1])].double())
    size = examples.double().norm(dim=2).sum(0).unsqueeze(1)
    return outside, 64 * ROUNDOFF.get(after.dtype, 0.0) * size


def _lasting(facts: Iterable[Fact]) -> list[Fact]:
    return [fact for fact in facts if not isinstance(fact, Absent)]


def _directions(batch: MessageBatch) -> list[tuple[str, Tensor | None]]:
    """Return the directions in which messages go, with the entries that do; None: all."""
    from_server = batch.senders == SERVER
    chosen = [(name, way) for name, way in (("up", ~from_server), ("down", from_server)) if bool(way.any())]
    return [(name, None if bool(way.all()) else way[batch.entry_messages()]) for name, way in chosen]


def _applied(expected: Expected, facts: Iterable[Fact]) -> Expected:
    """Return what ``facts`` make of what was expected in a round, counted from the first that each is about."""
    round = expected.round
    for fact in facts:
        since = fact.target.since if isinstance(fact.target, Field) else 0
        expected = fact.applied(dataclasses.replace(expected, round=round - since))
    return expected


def _codes(batch: MessageBatch) -> Tensor:
    """Return a number [P] for every pair of sender and receiver."""
    return (batch.senders.cpu() + 1) * 2**32 + batch.receivers.cpu() + 1


def _by_row(fact: Fact) -> bool:
    return isinstance(fact, KeptColumns) or (isinstance(fact, Clipped) and fact.per == "row")


def _spread(width: int) -> slice:
    """Return at most ``_COLUMNS`` of ``width`` columns, evenly spread."""
    return slice(0, None, max(1, -(-width // _COLUMNS)))
