"""Messages as a shuffler passes them on: round by round in a random order, without senders.

The order is a fixed function of the round, so that the scorer can tell whose message stood where; an attack reads the messages
only through :func:`pseudonymous`, which hands out nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fglaudit.attacks._global_node_rounds import uploads
from fglaudit.payloads import Payload
from fglaudit.rng import derive
from fglaudit.view import View


def shuffled(round: int, clients: int) -> Tensor:
    """Return which of the clients [K] stands at each place in ``round`` (counted from 1)."""
    return torch.randperm(clients, generator=derive(0, "pseudonyms", round))


def message_codes(round: int, clients: int) -> Tensor:
    """Return the codes of the messages of ``round``, by place [K]."""
    return round * clients + torch.arange(clients)


def pseudonymous(view: View, payload: type[Payload], most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield codes [K] and values [K, ...] of the messages that others upload, of at most ``most`` rounds, from the first."""
    for round, values in enumerate(uploads(view, payload, most), start=1):
        yield message_codes(round, len(values)), values[shuffled(round, len(values))]
