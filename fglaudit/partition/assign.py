"""From an owner per node to lists of nodes per client, and the checks all schemes share."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.errors import FglauditError


def lists_of(owner: Tensor, clients: int) -> list[Tensor]:
    """Return the ascending node ids of every client, from ``owner`` [N] with values 0 ... clients - 1, and -1 for nodes
    of nobody; by one sort, however many clients there are."""
    order = torch.argsort(owner, stable=True)
    sizes = torch.bincount(owner + 1, minlength=clients + 1)
    return list(torch.split(order, sizes.tolist()))[1:]


def refuse_empty(clients: list[Tensor], scheme: str, value: str, fix: str) -> None:
    """Raise if a client has no node."""
    empty = [k for k, nodes in enumerate(clients) if len(nodes) == 0]
    if empty:
        named = ", ".join(map(str, empty[:5])) + (" ..." if len(empty) > 5 else "")
        raise FglauditError(
            f"every client needs at least one node; {scheme} with {value} leaves {len(empty)} empty ({named}); {fix}"
        )


def numpy_seed(rng: torch.Generator) -> int:
    """Return a 31-bit seed for a library with a generator of its own; ``rng`` moves on by one draw."""
    return int(torch.randint(2**31 - 1, (1,), generator=rng).item())
