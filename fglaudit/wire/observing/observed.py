"""Observed, not believed (rule 11): compares what enters a defense's hooks with what leaves them.

Whatever changes without a fact that explains it is :class:`fglaudit.facts.Unstated`: for the scorer alone; so is what
is stated and never done, which attacks would reckon with. A hook that a defense neither overrides nor states anything
of is not watched, so that a run without a defense costs nothing. All values are compared
(:mod:`fglaudit.wire.observing.compared_values`); of sealed messages some are opened again
(:mod:`fglaudit.wire.observing.decryption_checks`). Random numbers of the run are never drawn here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest

import torch
from torch import Tensor

from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    Merged,
    Sampled,
    Sealed,
    Target,
    Unstated,
    first,
    kind_of,
    on,
    rebuilt,
)
from fglaudit.facts.explaining import ROUNDOFF, Expected, noise_in
from fglaudit.facts.residuals import Shape
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload, is_repeated
from fglaudit.sealing import SealedTensor
from fglaudit.secagg.rows import MaskedRows
from fglaudit.wire.observing.access_tracking import ACROSS, ReadGraphs
from fglaudit.wire.observing.compared_values import ComparedValues, applied
from fglaudit.wire.observing.decryption_checks import pair_codes
from fglaudit.wire.observing.foreign import is_foreign
from fglaudit.wire.observing.last_received import LastReceived
from fglaudit.wire.observing.merged_values import merges
from fglaudit.wire.observing.observed_graph import EDGE_FIELDS, changed_edges, changed_groups, same
from fglaudit.wire.observing.observed_seals import strange_seal
from fglaudit.wire.observing.stated import Stated, one_message
from fglaudit.wire.observing.summed_gradients import expected_sum, outside_samples

Noise = tuple[Tensor, Tensor, Shape] | None
_NO_ROOM = (
    "a client samples as many losses as it has weights, or more than are compared, so that any sum may be a sample's"
    " and its noise is not seen; train a larger model, or more clients"
)


class Observed:
    """Watches one session during one run.

    Attributes:
        unstated: changes that no fact explains, one per target.
        graphs: what was changed in clients' graphs, and what the protocol read of them.
        crosses: whether the protocol states that edges between clients enter what is sent or trained on; None: unknown.
    """

    def __init__(self, session: DefenseSession) -> None:
        self.session = session
        self._compared = ComparedValues()
        self._received = LastReceived()
        self._facts: tuple[Fact, ...] | None = None
        self._as_given: tuple[Fact, ...] | None = None
        self._sent: set[str] = set()
        self._sealed_kinds: set[str] = set()
        self._met: set[Target] = set()
        self.graphs = ReadGraphs()
        self._merged = False
        self._merging: set[Target] = set()
        self.crosses: bool | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the session states; other facts than at first are noted and not believed. Who drops out is drawn."""
        given = tuple(self.session.facts())
        if self._facts is None:
            self._as_given, self._facts = given, rebuilt(given)  # a fact may be edited later
        if given is self._as_given:
            return self._facts
        stated = rebuilt(given)
        if any(repr(a) != repr(b) for a, b in zip_longest(_lasting(stated), _lasting(self._facts))):
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

        def expects(before: Tensor) -> Expected:
            return applied(Expected.of(before.reshape(-1, width)), facts)

        def noise(before: Tensor, after: Tensor) -> Noise:
            return noise_in(expects(before), after.reshape(-1, width))

        return (Stated(ROWS, "x", facts, noise, expects),)

    def stated_update(self) -> tuple[Stated, ...]:
        """Return what is stated of the sum [K, D] of gradients [E, K, D]."""
        facts = tuple(f for f in self.facts if f.target == GRADIENTS)
        rest = tuple(f for f in facts if not (isinstance(f, Clipped) and f.per == "example"))

        sampled = any(isinstance(fact, Sampled) for fact in facts)
        rest = tuple(fact for fact in rest if not isinstance(fact, Sampled))

        def noise(gradients: Tensor, after: Tensor) -> Noise:
            if sampled and not bool(gradients.any()):  # all samples of nothing are the same
                return noise_in(applied(Expected.of(gradients.sum(0)), rest), after)
            total, size = self.expected_update(gradients)
            loose = 16 * ROUNDOFF.get(gradients.dtype, 0.0) * size.double()
            if sampled:
                if (outside := outside_samples(total, after)) is None:
                    return None
                total, after, loose = torch.zeros_like(outside[0]), *outside
            start = Expected.of(total)
            return noise_in(applied(dataclasses.replace(start, slack=start.slack + loose), rest), after)

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
                expects = self._expects(batch, facts, part)
                found.append(Stated(target, name, facts, _noise_beside(expects), expects, part))
        return tuple(found)

    def _expects(
        self, batch: MessageBatch, facts: tuple[Fact, ...], part: Tensor | None
    ) -> Callable[[Tensor], Expected]:
        around = any(isinstance(f, Clipped) and f.around == "received" for f in facts)

        def expects(before: Tensor) -> Expected:
            received = self._received.of(batch) if around else None
            if received is not None:
                received = (received if part is None else received[part])[: len(before)]
            return applied(Expected.of(before, received, batch.round), facts)

        return expects

    def _about(self, batch: MessageBatch, name: str, direction: str) -> tuple[Fact, ...]:
        """Return the facts about the values of a field that leave in one direction."""
        about = on(self.facts, type(batch.payload), name, direction)
        stated = [f for f in about if isinstance(f.target, Field) and f.target.since <= batch.round]
        self._met.update(f.target for f in stated)
        return tuple(f for f in stated if not isinstance(f, Sealed | Absent))

    @property
    def unstated(self) -> tuple[Unstated, ...]:
        self._compared.finish()
        for fact in self.facts:  # asked once more
            if why := self._never_done(fact):
                self._note(fact.target, f"{kind_of(fact)} is stated, and {why}")
        return tuple(Unstated(target, why, target in self._merging) for target, why in self._compared.found.items())

    def _never_done(self, fact: Fact) -> str:
        """Say why attacks that reckon with ``fact`` are misled: nothing went through a hook that it is about, though
        its payload, if it is about one, was sent; or what it is about enters nothing. Empty where they are not."""
        if isinstance(fact, Sealed | Absent):
            return ""
        if isinstance(fact, Merged) and not self._merged:
            return "the protocol asked for no groups of neighbours"
        if isinstance(fact, DroppedEdges | Merged) and self.crosses is False:
            return "the protocol states that edges between clients enter nothing that is sent or trained on"
        if fact.target in self._met:
            return self._never_read(fact)
        if not isinstance(fact.target, Field) or fact.target.payload in self._sent:
            return "nothing was sent to which that was done"
        return ""

    def _never_read(self, fact: Fact) -> str:
        """Say so where clients were changed as ``fact`` says, and the protocol read nothing of what was changed. Of a
        degree bound no change is promised: it holds of whatever edges are read."""
        if fact.target == ROWS:
            about: Iterable[str] = {"x"}
        elif fact.target == EDGES and not isinstance(fact, DegreeBound):
            about = ACROSS if isinstance(fact, DroppedEdges | Merged) else EDGE_FIELDS
        else:
            return ""
        if self.graphs.in_vain(about):
            return "the protocol reads nothing of what that changed in clients' graphs"
        return ""

    def watches(self, hook: str) -> bool:
        """Whether the session overrides ``hook``, or states what it would do there: that must then be seen."""
        own = getattr(getattr(self.session, hook), "__func__", None) is not getattr(DefenseSession, hook)
        return own or any(_hook_of(fact) == hook for fact in self.facts)

    def prepared(self, before: ClientGraph, after: ClientGraph) -> None:
        """Compare a client's graph, copied before, with the prepared one."""
        facts = self.facts
        self._met |= {ROWS, EDGES}
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
            self._compared.compare(ROWS, stated, before.x.reshape(-1, width), after.x.reshape(-1, width), None, 0)

    def merged(self, center: Tensor, neighbor: Tensor, groups: Tensor) -> None:
        """Compare groups of cross-client edges [E] with those stated."""
        self._met.add(EDGES)
        self._merged = True
        if (why := changed_groups(center, neighbor, groups, self.facts)) is not None:
            self._note(EDGES, why)

    def expected_update(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return what :meth:`updated` compares, of ``gradients`` [E, K, D] before the hook runs."""
        return expected_sum(gradients, [fact for fact in self.facts if fact.target == GRADIENTS])

    def updated(self, expected: tuple[Tensor, Tensor], after: Tensor) -> None:
        """Compare what a local step uses [K, D] with :meth:`expected_update`, made before the hook ran."""
        self._met.add(GRADIENTS)
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
            self._compared.compare(GRADIENTS, rest, total, after, None, 0, slack=loose)

    def _without_sample(self, examples: Tensor, after: Tensor, facts: list[Fact]) -> None:
        """Compare what no sample of ``examples`` [E, K, D'] can account for: the part of ``after`` that is orthogonal
        to all of them, in an orthonormal basis, so that independent noise stays so."""
        if (outside := outside_samples(examples, after)) is None:
            if is_foreign(self.session) and bool(examples.any()):
                self._note(GRADIENTS, _NO_ROOM)
            return
        left, loose = outside
        self._compared.compare(GRADIENTS, facts, torch.zeros_like(left), left, None, 0, slack=loose)

    def released(self, before: MessageBatch, tensors: dict[str, Tensor], after: Payload) -> None:
        """Compare what entered ``release``, with fields copied before, with the payload that left."""
        kind = type(before.payload)
        self._sent.add(kind.__name__)
        if type(after) is not kind:
            self._note(Field(kind.__name__), f"{kind.__name__} became {type(after).__name__}")
            return
        left = after.tensors()
        for direction, part in _directions(before):
            for name, value in tensors.items():
                if left[name] is not (entered := before.payload.tensors()[name]) and not same(value, entered):
                    self._note(Field(kind.__name__, name, direction), "the sender's own values were edited in place")
                self._field(before, name, direction, value, left[name], part)
        self._arrived(dataclasses.replace(before, payload=after))

    def forwarded(self, before: MessageBatch, after: MessageBatch) -> None:
        """Note ciphertexts that the server opened on their way: it has no key. Masks cancel in sums, which it reads."""
        left = after.payload.sealed_fields()
        held = [name for name, v in before.payload.sealed_fields().items() if not isinstance(v.sealed, MaskedRows)]
        if type(after.payload) is not type(before.payload) or any(name not in left for name in held):
            kind = type(before.payload).__name__
            self._note(Field(kind, "", "down"), "the server opened what is said to be sealed, so that it has a key")

    def arrived(self, batch: MessageBatch) -> None:
        """Note a message of the server that was made of sealed ones: what was done to it before cannot be seen."""
        about = on(self.facts, type(batch.payload), "", "down")
        self._met.update(f.target for f in about if isinstance(f.target, Field) and f.target.since <= batch.round)
        self._arrived(batch)

    def _arrived(self, batch: MessageBatch) -> None:
        """Remember what the server's message brings its receivers, where their changes to it are clipped."""
        kind = type(batch.payload)
        around = any(isinstance(f, Clipped) and f.around == "received" for f in on(self.facts, kind))
        if around and bool((batch.senders == SERVER).all()):
            self._received.remember(batch)

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
        if (part is None or is_repeated(before)) and one_message(target, before, after):
            before, after, part = before[:1], after[:1], None
        elif any(isinstance(f, Clipped) and f.around == "received" for f in stated):
            received = self._received.of(batch)
        if part is not None:
            before, after, received = before[part], after[part], None if received is None else received[part]
        self._compared.compare(target, stated, before, after, received, batch.round)
        if target in self._compared.found and any(isinstance(f, Additive) for f in stated) and merges(before, after):
            self._merging.add(target)

    def sealed(self, before: MessageBatch, after: MessageBatch) -> None:
        """Compare whose messages entered ``seal`` and left it: senders that are missing must be stated."""
        kind = type(before.payload)
        target = Field(kind.__name__, "", "up")
        there = torch.isin(pair_codes(before), pair_codes(after))
        absent = torch.unique(before.senders[~there])
        stated = [fact for fact in on(self.facts, kind, "", "up") if isinstance(fact, Absent)]
        if len(absent) and not any(fact.missing(absent, torch.unique(before.senders)) for fact in stated):
            self._note(target, f"messages of {len(absent)} of {len(before.senders)} senders are missing")
        if type(after.payload) is not kind or not same(pair_codes(after), pair_codes(before)[there]):
            self._note(target, "sealing changed the kind of a message, its sender or its receiver")
        self._sealed_kinds.add(kind.__name__)
        self.in_the_clear(after)

    def in_the_clear(self, batch: MessageBatch) -> None:
        """Note what clients send in the clear of a kind that they also send sealed, in whatever round: of seals only
        the first rounds are replayed."""
        name = type(batch.payload).__name__
        if name not in self._sealed_kinds or not len(batch.senders):
            return
        fields = batch.payload.tensors().items()
        shown = [n for n, v in fields if not isinstance(v, SealedTensor) and v.is_floating_point() and not v.is_meta]
        if shown:
            self._note(Field(name, "", "up"), f"it is said to be sealed, and {', '.join(shown)} left in the clear")

    def opened(self, before: MessageBatch, opened: MessageBatch) -> None:
        """Compare sealed messages that were opened again with what entered ``seal``, of which they may be a part."""
        target = Field(type(before.payload).__name__, "", "up")
        if target in self._compared.found:
            return
        part = before.select(torch.isin(pair_codes(before), pair_codes(opened)))
        stated = first(on(self.facts, type(before.payload), "", "up"), Sealed)
        if (why := strange_seal(part, opened, stated)) is not None:
            self._note(target, why)

    def _note(self, target: Target, why: str) -> None:
        self._compared.note(target, why)


def _noise_beside(expects: Callable[[Tensor], Expected]) -> Callable[[Tensor, Tensor], Noise]:
    """Return what tells the noise of what left, given what entered."""
    return lambda before, after: noise_in(expects(before), after)


def _hook_of(fact: Fact) -> str:
    """Return the hook through which goes what ``fact`` is about."""
    if isinstance(fact, Sealed | Absent):
        return "seal"
    if isinstance(fact.target, Field):
        return "release"
    if fact.target == GRADIENTS:
        return "local_update"
    return "merge" if isinstance(fact, Merged) else "prepare"


def _lasting(facts: Iterable[Fact]) -> list[Fact]:
    return [fact for fact in facts if not isinstance(fact, Absent)]


def _directions(batch: MessageBatch) -> list[tuple[str, Tensor | None]]:
    """Return the directions in which messages go, with the entries that do; None: all."""
    from_server = batch.senders == SERVER
    chosen = [(name, way) for name, way in (("up", ~from_server), ("down", from_server)) if bool(way.any())]
    return [(name, None if bool(way.all()) else way[batch.entry_messages()]) for name, way in chosen]
