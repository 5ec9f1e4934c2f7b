"""The first rounds of a training with its messages sealed, for what the server sees of them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.rng import derive
from fglaudit.sealing import SealedTensor, sealed_tensor
from fglaudit.wire.channel import RecordingChannel

SEALED_ROUNDS = 2
"""Rounds with sealed messages, after which a replay ends."""
LARGEST = 2**22
"""Numbers in the clear that are kept."""


@dataclass
class SealedTrace:
    """What a replay gave.

    Attributes:
        session: the defense as it was bound.
        sealings: messages as they entered the seal, and as they left their clients.
        masked: the aggregation of each of them, where it is the tool's own secure aggregation.
        clear: what went to the server or came from it and was not sealed, each with the name of its payload and field.
    """

    session: DefenseSession
    sealings: list[tuple[MessageBatch, MessageBatch]] = field(default_factory=list)
    masked: list[MaskingRound | None] = field(default_factory=list)
    clear: list[tuple[str, Tensor]] = field(default_factory=list)

    def first_of_kinds(self) -> list[tuple[MessageBatch, MessageBatch]]:
        """Return the first sealing of every kind of message, the last kind met before the others."""
        return list({type(before.payload): (before, after) for before, after in reversed(self.sealings)}.values())


class _EnoughError(Exception):
    """What follows is not replayed."""


class _Sealing(RecordingChannel):
    """Keeps what enters and leaves the seal, and what the server sees in the clear."""

    many_draws = False
    trace: SealedTrace
    kept = 0

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        return True

    def send(self, batch: MessageBatch) -> Payload:
        rounds = {before.round for before, _ in self.trace.sealings}
        if len(rounds) >= SEALED_ROUNDS and batch.round > max(rounds):
            raise _EnoughError
        return super().send(batch)

    def _sealed(self, batch: MessageBatch) -> tuple[MessageBatch, MessageBatch]:
        before, after = super()._sealed(batch)
        # A copy, as it left: a sum that is made in place would change it.
        parts = {
            name: sealed_tensor(v.sealed, tuple(v.shape), v.dtype, v.axes) if isinstance(v, SealedTensor) else v
            for name, v in after.payload.tensors().items()
        }
        kept = MessageBatch(
            after.round, after.senders, after.receivers, type(after.payload).from_tensors(parts), after.splits
        )
        self.trace.sealings.append((before, kept))
        sealing = self.session.sealed_by()
        own = isinstance(sealing, MaskingSession) and type(batch.payload) in sealing.rounds
        self.trace.masked.append(sealing.rounds[type(batch.payload)] if own else None)  # type: ignore[attr-defined]
        return before, after

    def _count(self, batch: MessageBatch) -> None:
        super()._count(batch)
        if not bool(((batch.senders == SERVER) | (batch.receivers == SERVER)).any()):
            return
        for name, value in batch.payload.tensors().items():
            if not isinstance(value, SealedTensor) and not value.is_meta and self.kept < LARGEST:
                self.kept += value.numel()
                self.trace.clear.append((f"{name} of {type(batch.payload).__name__}", value.detach().cpu().clone()))


def sealed_replay(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    *,
    seed: int,
    device: torch.device,
) -> SealedTrace:
    """Train until two rounds had sealed messages, under a fresh bind of ``defense``."""
    session = defense.bind(context)
    channel = _Sealing(session, graph.num_clients, derive(seed, "sealed replay"))
    channel.trace = SealedTrace(session)
    with contextlib.suppress(_EnoughError):
        protocol.train(graph, channel, rng=derive(seed, "sealed replay", "train"), device=device)
    return channel.trace
