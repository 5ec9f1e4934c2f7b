"""The first rounds of a training once more, hook by hook with equal draws, and what left every party in them.

Every call of a hook gets a generator of its own, drawn from the seed and the call's number, so that two replays draw
the same noise whatever happened between. A replay can be *forced*: receivers then get, of what a mechanism released,
the values of an earlier replay. What moves downstream of a release when one record changes would otherwise be counted
as a leak of its own, although it is post-processing of what was released.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Additive, first
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol, LocalUpdate, bound
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive

ROUNDS = 3
"""Rounds that are replayed, those of before training included."""
LARGEST = 2**25
"""Numbers kept of one replay; it ends there."""


@dataclass(frozen=True)
class Held:
    """What a mechanism released, and a forced replay takes from an earlier one.

    Attributes:
        rows: as clients start from them.
        gradients: sums that local steps use.
        payloads: kinds with noise, each with whether the server releases it.
    """

    rows: bool = False
    gradients: bool = False
    payloads: frozenset[tuple[str, bool]] = frozenset()


@dataclass
class Trace:
    """What left the parties of one replay.

    Attributes:
        rows: by client the prepared rows, one for every time it was prepared.
        updates: sums of gradients in the order of use.
        batches: messages in the order sent, as they left their senders.
        unmade: names of payloads that were announced and not made.
        accuracy: accuracies that the protocol reported, if it came to an end.
    """

    rows: list[tuple[int, Tensor]] = field(default_factory=list)
    updates: list[Tensor] = field(default_factory=list)
    batches: list[MessageBatch] = field(default_factory=list)
    unmade: set[str] = field(default_factory=set)
    accuracy: Tensor | None = None


class _EnoughError(Exception):
    """What follows is not replayed."""


class _Replay:
    """Implements :class:`fglaudit.interfaces.Channel`."""

    def __init__(
        self, defense: Defense, context: Context, seed: int, draws: str, forced: Trace | None, held: Held
    ) -> None:
        self.session = bound(defense, context)
        self.trace = Trace()
        self._seed, self._draws = seed, draws
        self._forced, self._held = forced, held
        self._kept = 0

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
        total = self.session.local_update(gradients, self._generator("update", at))
        self.trace.updates.append(self._keep(total))
        if self._forced is None or not self._held.gradients or at >= len(self._forced.updates):
            return total
        earlier = self._forced.updates[at]
        return earlier if earlier.shape == total.shape else total

    def send(self, batch: MessageBatch) -> Payload:
        if batch.round >= ROUNDS:
            raise _EnoughError
        name, at = type(batch.payload).__name__, len(self.trace.batches)
        if any(value.is_meta for value in batch.payload.tensors().values()):
            self.trace.unmade.add(name)
            return batch.payload
        payload = self.session.release(batch, self._generator("release", at))
        kept = type(payload).from_tensors({n: self._keep(v) for n, v in payload.tensors().items()})
        self.trace.batches.append(MessageBatch(batch.round, batch.senders, batch.receivers, kept, batch.splits))
        by_server = bool((batch.senders == SERVER).all())
        if self._forced is None or (name, by_server) not in self._held.payloads or at >= len(self._forced.batches):
            return payload
        return self._earlier(payload, self._forced.batches[at].payload)

    def round_done(self, round: int, rounds: int) -> None:
        if round >= ROUNDS - 1:
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
        self._kept += value.numel()
        if self._kept > LARGEST:
            raise _EnoughError
        return value.detach().clone()


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
) -> Trace:
    """Return what leaves the parties of a fresh bind of ``defense`` in the first rounds.

    Args:
        draws: replays of one name draw the same in every hook.
        forced: an earlier replay, of which receivers get what ``held`` names.
    """
    channel = _Replay(defense, context, seed, draws, forced, held or Held())
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
