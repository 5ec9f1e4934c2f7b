"""The first rounds of a training once more, hook by hook with equal draws, and what left every party in them.

Every call of a hook gets a generator of its own, drawn from the seed and the call's number, so that two replays draw
the same noise whatever happened between. A replay can be *forced*: receivers then get, of what a mechanism released,
the values of an earlier replay. What moves downstream of a release when one record changes would otherwise be counted
as a leak of its own, although it is post-processing of what was released.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, first
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol, LocalUpdate
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.counted import Counted
from fglaudit.rng import derive

ROUNDS = 3
"""Rounds that are replayed at least, those of before training included."""
LARGEST = 2**25
"""Numbers sent after which a replay ends, once every kind of message was reached."""
MOST = 2**30
"""Numbers sent after which it ends anyway."""
LOOKED_AT = 2
"""Numbers that are kept of every loss's gradient: combinations of its entries, by which two can be told apart."""
_SHARE = 8
"""While kinds are still awaited, of every kind and round this part of ``LARGEST`` is kept."""


@dataclass(frozen=True)
class Reach:
    """How far a replay goes.

    Attributes:
        kinds: payloads, each with whether the server sends it, that it does not end without.
        rounds: that it goes through at least.
    """

    kinds: frozenset[tuple[str, bool]] = frozenset()
    rounds: int = ROUNDS

    @staticmethod
    def of(counted: Counted) -> Reach:
        """Return the reach up to the round after the one in which the last kind of message of a run was first sent."""
        kinds = frozenset((sent.payload, sent.by_server) for sent in counted.sent)
        last = max((sent.first_round for sent in counted.sent), default=0)
        return Reach(kinds, max(ROUNDS, last + 2))

    def to_the_end(self) -> Reach:
        """Return the reach through all rounds, as far as ``LARGEST`` numbers go."""
        return replace(self, rounds=sys.maxsize)


@dataclass(frozen=True)
class Held:
    """What a mechanism released, and a forced replay takes from an earlier one.

    Attributes:
        rows: as clients start from them.
        gradients: sums that local steps use.
        payloads: kinds with noise, each with whether the server releases it.
        made: those of them of which it is kept what they were before a defense changed them.
    """

    rows: bool = False
    gradients: bool = False
    payloads: frozenset[tuple[str, bool]] = frozenset()
    made: frozenset[tuple[str, bool]] = frozenset()


@dataclass
class Trace:
    """What left the parties of one replay.

    Attributes:
        rows: by client the prepared rows, one for every time it was prepared.
        updates: sums of gradients in the order of use.
        losses: of each of them what tells the gradients apart that went in [E, K, ``LOOKED_AT``].
        batches: messages in the order sent, as they left their senders, less those that were too many to keep.
        numbers: of each of them among all that were sent.
        made: messages as their senders made them, those that ``Held.made`` names.
        unmade: names of payloads that were announced and not made.
        accuracy: accuracies that the protocol reported, if it came to an end.
    """

    rows: list[tuple[int, Tensor]] = field(default_factory=list)
    updates: list[Tensor] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    batches: list[MessageBatch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    made: list[MessageBatch] = field(default_factory=list)
    unmade: set[str] = field(default_factory=set)
    accuracy: Tensor | None = None

    def gradients(self) -> tuple[int, int, int] | None:
        """Return the shape [E, K, D] of the gradients of the first step; None where none were looked at."""
        if not self.losses or not self.updates:
            return None
        losses, models = self.losses[0].shape[:2]
        return losses, models, self.updates[0].shape[-1]


class _EnoughError(Exception):
    """What follows is not replayed."""


class _Replay:
    """Implements :class:`fglaudit.interfaces.Channel`."""

    def __init__(
        self,
        defense: Defense,
        context: Context,
        seed: int,
        draws: str,
        forced: Trace | None,
        held: Held,
        reach: Reach,
    ) -> None:
        self.session = defense.bind(context)
        self.trace = Trace()
        self._seed, self._draws = seed, draws
        self._forced, self._held = forced, held
        self._earlier_at = {} if forced is None else {number: at for at, number in enumerate(forced.numbers)}
        self._reach, self._awaited = reach, set(reach.kinds)
        self._kept = self._seen = self._sent = 0
        self._limit = LARGEST
        self._of_kind: Counter[tuple[str, bool, int]] = Counter()

    def prepare(self, client: ClientGraph) -> ClientGraph:
        prepared = self.session.prepare(client, self._generator("prepare", len(self.trace.rows)))
        at = len(self.trace.rows)
        self.trace.rows.append((client.client, self._keep(prepared.x)))
        if self._forced is None or not self._held.rows or at >= len(self._forced.rows):
            return prepared
        other, rows = self._forced.rows[at]
        return replace(prepared, x=rows) if other == client.client and rows.shape == prepared.x.shape else prepared

    def prepares(self) -> bool:
        return self.session.prepares()

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        return self.session.merge(center, neighbor)

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return self.session.changes(payload)

    def noise(self, payload: type[Payload]) -> Additive | None:
        return first(self.session.facts(), Additive, payload)

    def seals(self, payload: type[Payload]) -> bool:
        return False

    def local_update(self) -> LocalUpdate | None:
        return self._update if self.session.updates() else None

    def _update(self, gradients: Tensor) -> Tensor:
        at = len(self.trace.updates)
        if self._held.gradients:
            self.trace.losses.append(told_apart(gradients))
        total = self.session.local_update(gradients, self._generator("update", at))
        self.trace.updates.append(self._keep(total))
        if self._forced is None or not self._held.gradients or at >= len(self._forced.updates):
            return total
        earlier = self._forced.updates[at]
        return earlier if earlier.shape == total.shape else total

    def send(self, batch: MessageBatch) -> Payload:
        # Steps of one round may be numbered as rounds: where kinds come late, it is training's own rounds that count.
        if batch.round >= self._reach.rounds == ROUNDS and not self._awaited:
            raise _EnoughError
        name, by_server = type(batch.payload).__name__, bool((batch.senders == SERVER).all())
        awaited = bool(self._awaited)
        self._awaited.discard((name, by_server))
        if any(value.is_meta for value in batch.payload.tensors().values()):
            self.trace.unmade.add(name)
            return batch.payload
        at = self._sent
        self._sent += 1
        if (name, by_server) in self._held.made:
            self.trace.made.append(_kept(batch, batch.payload))
        payload = self.session.release(batch, self._generator("release", at))
        size = sum(value.numel() for value in payload.tensors().values())
        self._seen += size
        if awaited and not self._awaited:  # the last kind: what follows it in this round belongs to it
            self._limit = max(LARGEST, self._seen + LARGEST // _SHARE)
        if self._seen > (MOST if self._awaited else self._limit):
            raise _EnoughError
        held = (name, by_server) in self._held.payloads
        if held or self._room((name, by_server, batch.round), size):
            self.trace.batches.append(_kept(batch, payload))
            self.trace.numbers.append(at)
        if self._forced is None or not held or at not in self._earlier_at:
            return payload
        return self._earlier(payload, self._forced.batches[self._earlier_at[at]].payload)

    def _room(self, kind: tuple[str, bool, int], size: int) -> bool:
        """Whether to keep a message of ``size`` numbers."""
        if self._awaited and (self._of_kind[kind] + size > LARGEST // _SHARE or self._kept > LARGEST // 2):
            return False
        self._of_kind[kind] += size
        self._kept += size
        return True

    def round_done(self, round: int, rounds: int) -> None:
        if round >= self._reach.rounds - 1 and not self._awaited:
            raise _EnoughError

    @staticmethod
    def _earlier(payload: Payload, earlier: Payload) -> Payload:
        """Return ``payload`` with the values that were released in the earlier replay."""
        if type(payload) is not type(earlier):
            return payload
        fields, others = payload.tensors(), earlier.tensors()
        if any(fields[name].shape != others[name].shape for name in fields):
            return payload
        return type(payload).from_tensors({n: others[n] if v.is_floating_point() else v for n, v in fields.items()})

    def _generator(self, hook: str, number: int) -> torch.Generator:
        return derive(self._seed, "replay", self._draws, hook, number)

    def _keep(self, value: Tensor) -> Tensor:
        self._seen += value.numel()
        if self._seen > (MOST if self._awaited else self._limit):
            raise _EnoughError
        return value.detach().clone()


def told_apart(gradients: Tensor) -> Tensor:
    """Return combinations of the entries of every loss's gradient, of [E, K, D]: [E, K, ``LOOKED_AT``]."""
    by = derive(0, "gradients told apart")
    return gradients.detach() @ torch.randn(gradients.shape[2], LOOKED_AT, generator=by).to(gradients)


def _kept(batch: MessageBatch, payload: Payload) -> MessageBatch:
    own = type(payload).from_tensors({n: v.detach().clone() for n, v in payload.tensors().items()})
    return MessageBatch(batch.round, batch.senders, batch.receivers, own, batch.splits)


def replay(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    *,
    seed: int,
    device: torch.device,
    draws: str = "A",
    forced: Trace | None = None,
    held: Held | None = None,
    reach: Reach | None = None,
) -> Trace:
    """Return what leaves the parties of a fresh bind of ``defense`` in the first rounds.

    Args:
        draws: replays of one name draw the same in every hook.
        forced: an earlier replay, of which receivers get what ``held`` names.
        reach: how far it goes.
    """
    channel = _Replay(defense, context, seed, draws, forced, held or Held(), reach or Reach())
    with contextlib.suppress(_EnoughError):
        trained = protocol.train(graph, channel, rng=derive(seed, "replay", "train"), device=device)
        channel.trace.accuracy = trained.accuracy_global
    return channel.trace


def kinds(batches: Iterable[MessageBatch]) -> list[tuple[str, bool, str]]:
    """Return the fields that were sent, each with its payload and whether the server sent it; in order, once."""
    found: dict[tuple[str, bool, str], None] = {}
    for batch in batches:
        by_server = bool((batch.senders == SERVER).all())
        for name in batch.payload.tensors():
            found[type(batch.payload).__name__, by_server, name] = None
    return list(found)
