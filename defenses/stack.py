"""Several defenses as one: their hooks one after the other, in the order in which they are listed.

``{stack: [{name: gaussian}, {name: dp-sgd}, {name: homomorphic-encryption}]}`` in a suite. Rows and edges are prepared
by every part in turn, then messages are made; every part changes them in turn; a part that seals comes last. What has
no such order is refused with the reason (:mod:`fglaudit.defenses.stacking.conflicts`), and what epsilon is left is
derived, not assumed (:mod:`fglaudit.defenses.stacking.composition`).

A part that seals needs bounds on what it seals, and is bound to what the parts before it make of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.stacking.composition import Promises, alone_in
from fglaudit.defenses.stacking.conflicts import Part, conflict
from fglaudit.defenses.stacking.sizes import after
from fglaudit.errors import FglauditError
from fglaudit.facts import EDGES, ROWS, Fact
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.strength import check_factor


class _Session(DefenseSession):
    """Calls the parts' hooks in order. At most one part merges, one changes gradients and one seals."""

    def __init__(self, parts: Sequence[Part], promises: Promises) -> None:
        self.parts = [part.session for part in parts]
        self._promises = promises
        self._rng: torch.Generator | None = None
        self._merging = _only(self.parts, "merge")
        self._updating = next((part for part in self.parts if part.updates()), DefenseSession())
        self._sealing = _only(self.parts, "seal")

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        for part in self.parts:
            client = part.prepare(client, rng)
        return client

    def prepares(self) -> bool:
        return any(part.prepares() for part in self.parts)

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        return self._merging.merge(center, neighbor)

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return self._updating.local_update(gradients, rng)

    def updates(self) -> bool:
        return self._updating.updates()

    def changes(self, payload: type[Payload]) -> bool:
        return any(part.changes(payload) for part in self.parts)

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        self._rng = rng
        for part in self.parts:
            batch = dataclasses.replace(batch, payload=part.release(batch, rng))
        return batch.payload

    def seals(self, payload: type[Payload]) -> bool:
        return self._sealing.seals(payload)

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return self._sealing.seal(batch, rng)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Return what leaves the server; totals that it can read are its own message, which parts may change."""
        return self._sent_by_server(self._sealing.forward(batch))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        """Return sealed messages as clients read them; what comes from the server is what they go on from."""
        return self._sent_by_server(self._sealing.unseal(batch))

    def _sent_by_server(self, batch: MessageBatch) -> MessageBatch:
        """Let parts see (and, in the clear, change) a message of the server that came out of sealed ones."""
        if batch.payload.sealed_fields() or self._rng is None or not bool((batch.senders == SERVER).all()):
            return batch
        return dataclasses.replace(batch, payload=self.release(batch, self._rng))

    def readers(self, batch: MessageBatch) -> int:
        return self._sealing.readers(batch)

    def leave_out(self, clients: tuple[int, ...]) -> None:
        self._sealing.leave_out(clients)

    def overhead(self) -> tuple[Tensor, Tensor] | None:
        return self._sealing.overhead()

    def facts(self) -> tuple[Fact, ...]:
        """Return the parts' facts in order: those on edges and rows first, since they apply before any message."""
        stated = [fact for part in self.parts for fact in part.facts()]
        return tuple(sorted(stated, key=lambda fact: fact.target not in (EDGES, ROWS)))

    def guarantee(self) -> Guarantee:
        return self._promises.together()

    def sealed_by(self) -> DefenseSession:
        return self._sealing


def _only(sessions: Sequence[DefenseSession], hook: str) -> DefenseSession:
    """Return the session that overrides ``hook``, one that does nothing if none does."""
    default = getattr(DefenseSession, hook)
    return next((s for s in sessions if getattr(type(s), hook) is not default), DefenseSession())


@dataclass(frozen=True)
class Stack(Defense):
    """Several defenses one after the other, at least two. Epsilon is stated where their composition is justified.

    Attributes:
        parts: the defenses in the order in which they apply; the key ``stack`` of a suite.
    """

    name: ClassVar[str] = "stack"
    shown: ClassVar[tuple[str, ...]] = ("parts",)

    parts: tuple[Defense, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise FglauditError(
                f"a stack is made of at least two defenses; got {len(self.parts)}; name one defense by itself instead"
            )
        if any(isinstance(part, Stack) for part in self.parts):
            raise FglauditError("a stack has no stack inside; got one; list its parts instead")

    def weakened(self, factor: float) -> Stack:
        """Return the stack of its parts weakened."""
        check_factor(factor)
        return Stack(tuple(part.weakened(factor) for part in self.parts))

    def unsupported(self, context: Context) -> str | None:
        found = self._bound(context)
        return found if isinstance(found, str) else None

    def bind(self, context: Context) -> DefenseSession:
        found = self._bound(context)
        if isinstance(found, str):
            raise FglauditError(f"a stack must apply as a whole: {found}; change its parts")
        own = alone_in(context, found)
        if own is not None:  # each part answers for its own payloads, and their epsilons add up
            found = [
                dataclasses.replace(part, session=part.defense.bind(own[number])) if number in own else part
                for number, part in enumerate(found)
            ]
        senders = 0 if isinstance(context.uploads, str) else context.uploads.senders
        return _Session(found, Promises(tuple(found), context.releases, own is not None, senders))

    def _bound(self, context: Context) -> list[Part] | str:
        """Return the parts bound in order, or why they cannot serve together."""
        parts: list[Part] = []
        for defense in self.parts:
            if (reason := defense.unsupported(context)) is not None:
                return f"{defense.name}: {reason}"
            parts.append(Part(defense, defense.bind(context)))
            context = after(context, parts[-1].session)
        return conflict(parts) or parts
