"""Messages as a shuffler passes them on: round by round in a random order, without senders.

The order is a fixed function of the round, so that the scorer knows the sender of each message; an attack reads the
messages only through :func:`fglaudit.adversary.uploads.linkage.pseudonymous`, which hands out nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.rng import derive


def shuffled(round: int, clients: int) -> Tensor:
    """Return which of the clients [K] stands at each place in ``round`` (counted from 1)."""
    return torch.randperm(clients, generator=derive(0, "pseudonyms", round))


def message_codes(round: int, clients: int) -> Tensor:
    """Return the codes of the messages of ``round``, by place [K]."""
    return round * clients + torch.arange(clients)
