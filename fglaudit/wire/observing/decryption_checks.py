"""Which sealed messages are opened again to compare them with what entered ``seal``: a share of every round."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.payloads import MessageBatch
from fglaudit.rng import derive

_OPENED = 2**19
"""Values per payload and round, about."""
_OPENED_ONCE = 2**23
"""Before training, where payloads are sent a single time."""
_ROW_COST = 2048
"""Values that opening one row costs at least."""


class DecryptionChecks:
    """Chooses at random, by a generator of its own, and keeps count of what each round has spent."""

    def __init__(self) -> None:
        self._rng = derive(0, "observed messages")
        self._spent: dict[str, tuple[int, int]] = {}

    def chosen(self, batch: MessageBatch, readable: Tensor) -> Tensor:
        """Return which sealed messages [P] to open besides the ``readable`` ones [P], which are anyway: as many as the
        round's share allows, at least one a round."""
        rows = torch.ones(len(batch.senders), dtype=torch.long) if batch.splits is None else batch.splits.cpu().diff()
        width = sum(v[:1].numel() for v in batch.payload.tensors().values())
        name, most = type(batch.payload).__name__, _OPENED if batch.round else _OPENED_ONCE
        round, spent = self._spent.get(name, (-1, 0))
        cost = rows * max(width, _ROW_COST)
        spent = (spent if round == batch.round else 0) + int(cost[readable].sum())
        order = torch.randperm(len(rows), generator=self._rng)
        order = order[~readable[order]]
        total = cost[order].cumsum(0) + spent
        few = total <= most
        if spent == 0:
            few[:1] = True
        self._spent[name] = (batch.round, int(total[few][-1]) if bool(few.any()) else spent)
        codes = pair_codes(batch)
        return torch.isin(codes, codes[order[few]]) & ~readable


def pair_codes(batch: MessageBatch) -> Tensor:
    """Return a number [P] for every pair of sender and receiver."""
    return (batch.senders.cpu() + 1) * 2**32 + batch.receivers.cpu() + 1
