"""A defense, and the session of it that is bound to one training run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.facts import Fact
from fglaudit.files.field_types import CheckedFields
from fglaudit.graph import ClientGraph
from fglaudit.interfaces.guarantee import Guarantee
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.privacy.strength import check_factor


class DefenseSession:
    """A defense bound to one training run. Every hook does nothing by default."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Change what a client starts from; ``rng`` draws what is random about it. Must not mutate ``client``."""
        return client

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Group the cross-client edges ``center <- neighbor`` [E] of one neighbourhood each, ascending by center.

        Whoever sums over neighbourhoods uses the mean of a group's rows in place of each of them.

        Returns:
            Group of every edge [E], numbered from 0; -1 where the neighbour's own row is used.
        """
        return torch.full_like(center, -1)

    def prepares(self) -> bool:
        """Whether :meth:`prepare` may change a client."""
        return type(self).prepare is not DefenseSession.prepare

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        """Return the sum over the examples of ``gradients`` [E, K, D], clipped and with noise [K, D]; see
        :data:`LocalUpdate`."""
        return gradients.sum(0)

    def updates(self) -> bool:
        """Whether :meth:`local_update` is more than the sum, so that gradients are wanted example by example."""
        return type(self).local_update is not DefenseSession.local_update

    def changes(self, payload: type[Payload]) -> bool:
        """Whether the defense may alter this payload, in :meth:`release` or before it is made."""
        return False

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Return what leaves the senders: clip and noise at the sender, client or server. Called for every payload,
        whatever :meth:`changes` says; return ``batch.payload`` for those it leaves alone."""
        return batch.payload

    def seals(self, payload: type[Payload]) -> bool:
        """Whether clients send this payload sealed: the server can then add, pick and scale its rows, and not read
        them."""
        return False

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        """Return what leaves the clients: floating-point fields as :class:`fglaudit.sealing.SealedTensor`, after
        :meth:`release`. Clients that drop out are left out."""
        return batch

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Return what leaves the server, which made ``batch`` of sealed values. A scheme whose totals the server may
        read opens them here; others return it as it is."""
        return batch

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        """Return sealed messages as :meth:`readers` clients that pool their keys read them."""
        return batch

    def readers(self, batch: MessageBatch) -> int:
        """How many clients must pool their keys to read these sealed messages; whoever sent a message reads it
        anyway."""
        return 1

    def leave_out(self, clients: tuple[int, ...]) -> None:
        """The server says that ``clients`` are gone: from now on, until this is called again, they send nothing."""

    def overhead(self) -> tuple[Tensor, Tensor] | None:
        """Return the bytes [K] up and [K] down of keys and the like that the scheme itself exchanged since the last
        call, if any."""
        return None

    def facts(self) -> tuple[Fact, ...]:
        """What the defense does to rows, edges, gradients and payload fields, in the order in which it applies; public
        (rule 4), and compared with what the hooks really do (rule 11)."""
        return ()

    def guarantee(self) -> Guarantee:
        return Guarantee()

    def sealed_by(self) -> DefenseSession:
        """Return the session that seals: itself, or a part of a stack."""
        return self


class Defense(CheckedFields, ABC):
    """Changes what is sent or how training is done, and states its guarantee. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()

    def unsupported(self, context: Context) -> str | None:
        """Return why this defense cannot serve the protocol, or None. The cell is then `not-applicable` with that
        reason."""
        return None

    @abstractmethod
    def bind(self, context: Context) -> DefenseSession:
        """Calibrate for one training run."""

    def weakened(self, factor: float) -> Self:
        """Return the same defense at a strength that falls to 0 with ``factor``, in (0, 1]. One that has no strength
        to set, or is as strong at any setting, returns itself."""
        check_factor(factor)
        return self
