"""What was counted on the wire of one run: how often each kind of payload was released, and how often gradients were
used. It is what epsilon is composed over; what a defense says of it is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """How often one kind of payload left clients, or the server.

    Attributes:
        payload: its name.
        by_server: who sent it.
        first_round: in which it was first sent.
        rounds: in how many it was.
        messages: over all rounds, the most messages that one sender sent in a round, added up. Equal ones to several
            receivers count once: they were released once.
        repeats: over all rounds, the most messages of a round with the same sender, receiver and node, added up.
        numbers: most floating-point numbers in one entry of a message.
        fields: names of the floating-point fields.
        to_server, to_clients: who received it.
    """

    payload: str
    by_server: bool
    first_round: int = 0
    rounds: int = 0
    messages: int = 0
    repeats: int = 0
    numbers: int = 0
    fields: tuple[str, ...] = ()
    to_server: bool = False
    to_clients: bool = False


@dataclass(frozen=True)
class Counted:
    """Of one training run.

    Attributes:
        sent: by kind of payload and side.
        prepared: how often each client [K] was prepared.
        updates: calls of ``local_update``.
        examples: gradients other than zero that entered it, by model [K].
    """

    sent: tuple[Sent, ...] = ()
    prepared: tuple[int, ...] = ()
    updates: int = 0
    examples: tuple[int, ...] = ()

    def of(self, payload: str, *, by_server: bool) -> Sent:
        """Return what was counted of a payload; zeros if it was never sent from there."""
        found = (sent for sent in self.sent if sent.payload == payload and sent.by_server is by_server)
        return next(found, Sent(payload, by_server))

    def among_clients(self, payload: str) -> bool:
        """Return whether clients sent it to one another; such messages never reach the server."""
        return self.of(payload, by_server=False).to_clients

    def passes(self, losses: tuple[int, ...]) -> int | None:
        """Return how often training went through its ``losses`` [K], at least; None where these are not known."""
        if not losses or len(losses) != len(self.examples):
            return None
        return max((-(-used // most) for used, most in zip(self.examples, losses, strict=True) if most), default=0)
