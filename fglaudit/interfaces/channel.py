"""What a protocol sends through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from fglaudit.facts import Additive
from fglaudit.graph import ClientGraph
from fglaudit.payloads import MessageBatch, Payload


class Channel(Protocol):
    """What a protocol sends through; ``fglaudit.wire.channel.RecordingChannel`` is the real one."""

    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Return the client's graph after the defense had its say (dropped edges, clipped or disturbed rows). Call once
        per client: what is drawn for it is drawn again otherwise."""
        ...

    def prepares(self) -> bool:
        """Whether :meth:`prepare` changes anything; a protocol with very many clients may skip it otherwise."""
        ...

    def send(self, batch: MessageBatch) -> Payload:
        """Send; returns what the receivers get, which is what they must train on (rule 2)."""
        ...

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        """Whether this payload must really be produced in ``round``: a recorder keeps it or the defense changes it
        (rule 2)."""
        ...

    def noise(self, payload: type[Payload]) -> Additive | None:
        """Return what the defense adds to this payload: public, so receivers can reckon with it."""
        ...

    def seals(self, payload: type[Payload]) -> bool:
        """Whether clients send this payload sealed, so that the server cannot do more with it than linear algebra."""
        ...

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Return the defense's groups of cross-client edges, see :meth:`DefenseSession.merge`."""
        ...

    def local_update(self) -> LocalUpdate | None:
        """Return what the defense makes of a step's gradients; None (the usual case) where the plain sum does."""
        ...

    def round_done(self, round: int, rounds: int) -> None:
        """Report progress."""
        ...


LocalUpdate = Callable[[Tensor], Tensor]
"""From the gradients of every example's loss [E, K, D] for K clients, 0 where a client has fewer than E, to their sum
[K, D] as a client uses it. Whoever wants a mean divides the sum by a number of examples that does not depend on it."""
