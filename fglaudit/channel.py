"""The one way from party to party: applies the defense, counts bytes, records, and returns what arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from fglaudit.graph import ClientGraph
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.transcript import Transcript
from fglaudit.view import Observer


@dataclass(frozen=True)
class Keep:
    """What a recorder keeps: payload types and parties; None means all of them."""

    payloads: frozenset[type[Payload]] | None = None
    parties: frozenset[int] | None = None

    @staticmethod
    def for_observers(observers: Iterable[Observer], payloads: Iterable[type[Payload]]) -> Keep:
        """Keep what these observers see of these payloads."""
        observers = list(observers)
        parties = None if any(o.wire for o in observers) else frozenset(p for o in observers for p in o.parties)
        return Keep(frozenset(payloads), parties)

    def wants(self, payload: type[Payload]) -> bool:
        return self.payloads is None or payload in self.payloads


class RecordingChannel:
    """Implements :class:`fglaudit.interfaces.Channel`.

    Args:
        session: the defense, bound to this run.
        num_clients: K.
        rng: draws the defense's noise.
        transcript: where messages are recorded; None records nothing.
        keep: what is recorded.
        progress: called with (round, rounds) after every round.

    Attributes:
        bytes_up, bytes_down: exact wire bytes per client [K], clients to server and server to clients.
    """

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
        self._rng = rng
        self._progress = progress

    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Return the client's graph after the defense had its say."""
        return self.session.prepare(client)

    def prepares(self) -> bool:
        """Whether the defense changes what clients start from."""
        return self.session.prepares()

    def wants(self, payload: type[Payload]) -> bool:
        """Whether this payload must really be produced (rule 2)."""
        recorded = self.transcript is not None and self.keep.wants(payload)
        return recorded or self.session.changes(payload)

    def send(self, batch: MessageBatch) -> Payload:
        """Defend, count, record; return what the receivers get."""
        if self.session.changes(type(batch.payload)):
            payload = self.session.release(batch, self._rng)
            batch = MessageBatch(batch.round, batch.senders, batch.receivers, payload, batch.splits)
        self._count(batch)
        if self.transcript is not None and self.keep.wants(type(batch.payload)):
            self._record(self.transcript, batch)
        return batch.payload

    def round_done(self, round: int, rounds: int) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(round, rounds)

    def _count(self, batch: MessageBatch) -> None:
        size = batch.bytes_per_message()
        up = batch.senders != SERVER
        down = batch.receivers != SERVER
        self.bytes_up.index_add_(0, batch.senders[up], size[up])
        self.bytes_down.index_add_(0, batch.receivers[down], size[down])

    def _record(self, transcript: Transcript, batch: MessageBatch) -> None:
        if self.keep.parties is None:
            transcript.add(batch)
            return
        parties = torch.tensor(sorted(self.keep.parties))
        kept = torch.isin(batch.senders, parties) | torch.isin(batch.receivers, parties)
        if bool(kept.all()):
            transcript.add(batch)
        elif bool(kept.any()):
            transcript.add(batch.select(kept))
