"""The one way from party to party: applies the defense, counts bytes, records, and returns what arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import ROWS, Additive, Fact, Field, Unstated, first
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Attack, DefenseSession, LocalUpdate
from fglaudit.payloads import SERVER, Ciphertexts, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.counted import Counted
from fglaudit.structure import PersonalAverages
from fglaudit.view import Observer
from fglaudit.wire.counting import Counter
from fglaudit.wire.observing.call_replay import CallReplay
from fglaudit.wire.observing.decryption_checks import DecryptionChecks
from fglaudit.wire.observing.observed import Observed
from fglaudit.wire.observing.observed_graph import copied
from fglaudit.wire.observing.plain_values import plain_client, plain_payload, plain_tensor
from fglaudit.wire.observing.stated import Hook, Values, own
from fglaudit.wire.transcript import Transcript

_FEW_VALUES = 64


@dataclass(frozen=True)
class Keep:
    """What a recorder keeps.

    Attributes:
        payloads: by payload type the last round that is kept, None for all rounds; None means every payload.
        parties: whose messages; None means everybody's, and that any number of clients may pool their keys.
        pooled: how many clients pool their keys at most.
        since: by payload type the round from which on it is kept too, as some attacks read the last rounds alone.
        sealed: as ``payloads``, of those that clients send sealed alone.
    """

    payloads: Mapping[type[Payload], int | None] | None = None
    parties: frozenset[int] | None = None
    pooled: int = 0
    since: Mapping[type[Payload], int] = field(default_factory=dict)
    sealed: Mapping[type[Payload], int | None] = field(default_factory=dict)

    @staticmethod
    def for_attacks(observers: Iterable[Observer], attacks: Iterable[Attack], rounds: int | None = None) -> Keep:
        """Keep what these attacks read of what these observers see; ``rounds``: of the training, None: unknown."""
        observers = list(observers)
        parties = None if any(o.wire for o in observers) else frozenset(p for o in observers for p in o.parties)
        last: dict[type[Payload], int | None] = {}
        sealed: dict[type[Payload], int | None] = {}
        since: dict[type[Payload], int] = {}
        for attack in attacks:
            final = type(attack).last_rounds
            for payload in type(attack).reads():
                if final is not None and rounds is not None:
                    since[payload] = min(since.get(payload, rounds), rounds - final + 1)
                    if type(attack).first_rounds is None:
                        continue
                upto, read = type(attack).last_round(payload), sealed if type(attack).sealed_only else last
                known = read.get(payload, 0)
                read[payload] = None if upto is None or known is None else max(known, upto)
        if ModelUpdate in last:  # a model that is left of averages follows with what their weights are made of alone
            for payload in PersonalAverages.payloads:
                upto, known = last[ModelUpdate], last.get(payload, 0)
                last[payload] = None if upto is None or known is None else max(known, upto)
        return Keep(last, parties, max((len(o.clients) for o in observers), default=0), since, sealed)

    def wants(self, payload: type[Payload], round: int = 0, *, sealed: bool = False) -> bool:
        """Whether messages of ``round`` are kept; ``sealed``: clients send them so."""
        if self.payloads is None:
            return True
        upto = [self.payloads.get(payload, -1), self.sealed.get(payload, -1) if sealed else -1]
        return any(last is None or round <= last for last in upto) or round >= self.since.get(payload, round + 1)


class RecordingChannel:
    """Implements :class:`fglaudit.interfaces.Channel`.

    Args:
        session: the defense, bound to this run.
        num_clients: K.
        rng: draws the defense's noise, on messages and on what clients start from.
        transcript: where messages are recorded; None records nothing.
        keep: what is recorded.
        progress: called with (round, rounds) after every round.

    Attributes:
        bytes_up, bytes_down: exact wire bytes per client [K], clients to server and server to clients.
        bytes_of: by payload type; a message between two clients counts once.
        bytes_sealed: those of them that are ciphertexts, in all.
        inputs: feature rows [n_k, F] that a defense changed, as it states, by client.
        edges: that a defense left (:meth:`fglaudit.graph.ClientGraph.edges`), by client, where it changed any.
        many_draws: whether noise is judged by many draws too: not where nobody reads ``unstated``, since the run that
            is judged looks at them, and they take most of the time of a small run.
    """

    many_draws: ClassVar[bool] = True

    def __init__(
        self,
        session: DefenseSession,
        num_clients: int,
        rng: torch.Generator,
        transcript: Transcript | None = None,
        keep: Keep | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.session = session
        self.transcript = transcript
        self.keep = keep or Keep()
        self.bytes_up = torch.zeros(num_clients, dtype=torch.long)
        self.bytes_down = torch.zeros(num_clients, dtype=torch.long)
        self.bytes_of: dict[type[Payload], int] = {}
        self.bytes_sealed = 0
        self.inputs: dict[int, Tensor] = {}
        self.edges: dict[int, Tensor] = {}
        self._observed = Observed(session)
        self._opening = DecryptionChecks()
        self._again = CallReplay(session, many=self.many_draws)
        self._counter = Counter(num_clients, exact=self._observed.watches("release"))
        self._rng = rng
        self._progress = progress
        self._home: torch.device | None = None

    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Return the client's graph as the defense prepares it."""
        before = copied(client) if self._observed.watches("prepare") else None
        stated = self._observed.stated_rows(client)
        hook = partial(_prepare, client)
        prepared: ClientGraph
        prepared, wrong = self._again.call(hook, {"x": client.x}, stated, self._rng)
        self._observed.accuse(wrong)
        self._counter.prepared(client.client)
        if before is not None:
            self._observed.prepared(before, prepared)
        if any(fact.target == ROWS for fact in self._observed.facts):
            self.inputs[client.client] = prepared.x
        if prepared.edge_index is not client.edge_index or prepared.boundary is not client.boundary:
            self.edges[client.client] = prepared.edges()
        return prepared if before is None else self._observed.graphs.noting(before, prepared)

    def prepares(self) -> bool:
        """Whether the defense changes what clients start from."""
        return self.session.prepares()

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        """Whether this payload must really be produced in ``round`` (rule 2)."""
        recorded = self.transcript is not None and self._kept(payload, round)
        return recorded or self.session.changes(payload) or self.session.seals(payload)

    def noise(self, payload: type[Payload]) -> Additive | None:
        """Return what the defense adds to this payload."""
        return first(self._observed.facts, Additive, payload)

    def seals(self, payload: type[Payload]) -> bool:
        """Whether clients send this payload sealed."""
        return self.session.seals(payload)

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Return the defense's groups of cross-client edges [E]."""
        if not self._observed.watches("merge"):
            return self.session.merge(center, neighbor)
        edges = center.clone(), neighbor.clone()
        groups = self.session.merge(center, neighbor)
        self._observed.merged(*edges, groups)
        return groups

    def local_update(self) -> LocalUpdate | None:
        """Return what the defense makes of a step's gradients; None if it leaves them alone."""
        if not self.session.updates():
            return None
        return self._update

    def _update(self, gradients: Tensor) -> Tensor:
        self._counter.updated(gradients)
        if not self._observed.watches("local_update"):
            return self.session.local_update(gradients, self._again.draws(self._rng))
        expected = self._observed.expected_update(gradients)  # before the call, which may edit gradients in place
        stated = self._observed.stated_update()
        update: Tensor
        update, wrong = self._again.call(_update, {"gradients": gradients}, stated, self._rng)
        self._observed.accuse(wrong)
        self._observed.updated(expected, update)
        return update

    def states(self, context: Context) -> None:
        """Take note of what the protocol states of the run: what is done to what it does not use is not done."""
        self._observed.crosses = context.cross_edges

    @property
    def unstated(self) -> tuple[Unstated, ...]:
        """What the defense changed and no fact of it explains: for the scorer, never for attacks."""
        return self._observed.unstated

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the defense states, as it first did."""
        return self._observed.facts

    @property
    def counted(self) -> Counted:
        """How often each kind of payload was released, and gradients were used."""
        return self._counter.counted

    def send(self, batch: MessageBatch) -> Payload:
        """Defend, count, record; return what the receivers get: to clients, what they read with their key."""
        entered = None  # what was sealed just now
        if batch.payload.sealed_fields():
            at_server = batch
            batch = self.session.forward(batch)
            self._observed.forwarded(at_server, batch)
            self._counter.sent(batch)
            if not batch.payload.sealed_fields():
                self._observed.arrived(batch)
        else:
            batch = self._released(batch)
            self._counter.sent(batch)
            if bool((batch.senders != SERVER).all()):
                if self.session.seals(type(batch.payload)):
                    entered, batch = self._sealed(batch)
                else:
                    self._observed.in_the_clear(batch)
        self._count(batch)
        if not batch.payload.sealed_fields():
            if entered is not None:
                self._observed.opened(entered, batch)
            self._record(batch)
            return batch.payload
        self._record(batch.ciphertexts())
        readers = self.session.readers(batch)
        if bool((batch.receivers != SERVER).all()):
            opened = self._unsealed(batch)
            if entered is not None:
                self._observed.opened(entered, opened)
            self._observed.arrived(opened)
            self._record(opened, readers)
            return opened.payload
        readable = self._readable(batch, readers)
        if bool(readable.any()):
            opened = self._unsealed(batch.select(readable))
            if entered is not None:
                self._observed.opened(entered, opened)
            self._record(opened, readers)
        if entered is not None and bool((more := self._opening.chosen(batch, readable)).any()):
            self._observed.opened(entered, self._unsealed(batch.select(more)))
        return batch.payload

    def _released(self, batch: MessageBatch) -> MessageBatch:
        """Let the defense have its say on every payload, also on those that it says it leaves alone."""
        announced = any(value.is_meta for value in batch.payload.tensors().values())  # counted only: no values at all
        if announced or not self._observed.watches("release"):
            return batch
        before = {name: own(value) for name, value in batch.payload.tensors().items()}
        stated, given = self._observed.stated_fields(batch), batch.payload.tensors()
        hook, few = partial(_release, batch), partial(_few_messages, batch)
        payload, wrong = self._again.call(hook, given, stated, self._rng, few)
        self._observed.accuse(wrong)
        self._observed.released(batch, before, payload)
        return MessageBatch(batch.round, batch.senders, batch.receivers, payload, batch.splits)

    def _sealed(self, batch: MessageBatch) -> tuple[MessageBatch, MessageBatch]:
        """Return what entered the seal, in memory of its own, and what left it."""
        payload = type(batch.payload).from_tensors({n: own(value) for n, value in batch.payload.tensors().items()})
        self._home = next(value.device for value in payload.tensors().values())
        before = MessageBatch(batch.round, batch.senders.clone(), batch.receivers.clone(), payload, batch.splits)
        after = self.session.seal(batch, self._again.draws(self._rng))
        self._observed.sealed(before, after)
        return before, after

    def _unsealed(self, batch: MessageBatch) -> MessageBatch:
        """Return what the holder of a key reads, on the device where clients compute: seals have no device."""
        opened = self.session.unseal(batch)
        if self._home is None:
            return opened
        payload = type(opened.payload).from_tensors({n: v.to(self._home) for n, v in opened.payload.tensors().items()})
        return MessageBatch(opened.round, opened.senders, opened.receivers, payload, opened.splits)

    def round_done(self, round: int, rounds: int) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(round, rounds)

    def _count(self, batch: MessageBatch) -> None:
        size = batch.bytes_per_message()
        kind = type(batch.payload)
        self.bytes_of[kind] = self.bytes_of.get(kind, 0) + int(size.sum().item())
        self.bytes_sealed += int(batch.sealed_bytes().sum().item())
        up = batch.senders != SERVER
        down = batch.receivers != SERVER
        self.bytes_up.index_add_(0, batch.senders[up], size[up])
        self.bytes_down.index_add_(0, batch.receivers[down], size[down])
        more, wrong = self._again.overhead()
        if wrong and self._home is None:  # who seals counts keys, and nobody follows that with other rows
            self._observed.accuse({Field(type(batch.payload).__name__, "", "up"): wrong})
        if more is not None:
            self.bytes_up += more[0]
            self.bytes_down += more[1]

    def _readable(self, batch: MessageBatch, readers: int) -> Tensor:
        """Return which messages [P] of a sealed upload are opened: they are recorded and an observer can read them."""
        keep = self.keep
        if self.transcript is None or not self._kept(type(batch.payload), batch.round):
            return torch.zeros(len(batch.senders), dtype=torch.bool)
        if keep.parties is None or keep.pooled >= readers:
            return torch.ones(len(batch.senders), dtype=torch.bool)
        return torch.isin(batch.senders, torch.tensor(sorted(keep.parties)))

    def _kept(self, payload: type[Payload], round: int) -> bool:
        return self.keep.wants(payload, round, sealed=self.session.seals(payload))

    def _record(self, batch: MessageBatch, readers: int = 0) -> None:
        payload, transcript = type(batch.payload), self.transcript
        if transcript is None or not (payload is Ciphertexts or self._kept(payload, batch.round)):
            return
        if self.keep.parties is None:
            transcript.add(batch, readers=readers)
            return
        parties = torch.tensor(sorted(self.keep.parties))
        kept = torch.isin(batch.senders, parties) | torch.isin(batch.receivers, parties)
        if bool(kept.all()):
            transcript.add(batch, readers=readers)
        elif bool(kept.any()):
            transcript.add(batch.select(kept), readers=readers)


def _prepare(client: ClientGraph, session: DefenseSession, values: Values, rng: torch.Generator) -> tuple[Any, Values]:
    """Let ``session`` prepare ``client`` with rows ``values["x"]``."""
    given = client if values["x"] is client.x else replace(client, x=values["x"])
    prepared = plain_client(session.prepare(given, rng), [values["x"], client.y])
    return prepared, {"x": prepared.x}


def _update(session: DefenseSession, values: Values, rng: torch.Generator) -> tuple[Any, Values]:
    """Let ``session`` make its sum of ``values["gradients"]``."""
    total = plain_tensor(session.local_update(values["gradients"], rng), "the sum of gradients", values.values())
    return total, {"gradients": total}


def _release(batch: MessageBatch, session: DefenseSession, values: Values, rng: torch.Generator) -> tuple[Any, Values]:
    """Let ``session`` release ``batch`` with the fields ``values``."""
    held = batch.payload.tensors()
    same = all(values[name] is value for name, value in held.items())
    given = batch if same else replace(batch, payload=type(batch.payload).from_tensors(dict(values)))
    payload = plain_payload(session.release(given, rng), values.values())
    return payload, payload.tensors()


def _few_messages(batch: MessageBatch) -> tuple[Hook, Values]:
    """Return the hook for so many of the first messages as hold some values, of longer ones for their first entries,
    and these values."""
    entries, numbers = len(batch.entry_messages()), max(1, batch.payload.numbers())
    small = batch.select(torch.arange(len(batch.senders)) < 1 + _FEW_VALUES * len(batch.senders) // numbers)
    if small.splits is not None:
        splits = small.splits.clamp(max=1 + _FEW_VALUES * entries // numbers)
        first = torch.arange(int(splits[-1]), device=splits.device)
        small = replace(small, payload=small.payload.select(first), splits=splits)
    return partial(_release, small), {name: own(value) for name, value in small.payload.tensors().items()}
