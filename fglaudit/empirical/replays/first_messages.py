"""One real batch of every kind of message that gets noise, as it is before the noise: shapes, senders, receivers."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import torch

from fglaudit.empirical.replays.passing_channel import PassingChannel
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import split

Kind = tuple[str, bool]
"""Name of a payload, and whether the server sends it."""


class _AllSeenError(Exception):
    """Nothing else is wanted."""


class _FirstMessages(PassingChannel):
    """Implements :class:`fglaudit.interfaces.Channel`: passes everything on as it is."""

    def __init__(self, session: DefenseSession, wanted: Collection[Kind], rng: torch.Generator) -> None:
        super().__init__(session, rng)
        self.wanted = set(wanted)
        self.found: dict[Kind, MessageBatch] = {}

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return any(name == payload.__name__ for name, _ in self.wanted)

    def send(self, batch: MessageBatch) -> Payload:
        by_server = bool((batch.senders == SERVER).all())
        kind = (type(batch.payload).__name__, by_server)
        # Models that the server sends before the first round are made from nobody's data.
        start = by_server and batch.round == 0 and kind[0] == "ModelUpdate"
        if kind in self.wanted and kind not in self.found and len(batch.senders) and not start:
            self.found[kind] = batch
            if set(self.found) == self.wanted:
                raise _AllSeenError
        return batch.payload

    def round_done(self, round: int, rounds: int) -> None:
        return


def first_messages(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    session: DefenseSession,
    wanted: Collection[Kind],
    *,
    rng: torch.Generator,
    device: torch.device,
) -> dict[Kind, MessageBatch]:
    """Return the first batch of each wanted kind; those that training never sends are left out."""
    if not wanted:
        return {}
    channel = _FirstMessages(session, wanted, split(rng, "prepare"))
    with contextlib.suppress(_AllSeenError):
        protocol.train(graph, channel, rng=rng, device=device)
    return channel.found
