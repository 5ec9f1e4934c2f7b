"""Maps of entries by what was seen: tables of values, of all entries or of each column, and remainders of a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.learned.maps.row_map import Learner, RowMap

_KNOTS = 2**20
"""Entries that a table keeps."""
_ENDS = ("amin", "amax")


@dataclass(frozen=True)
class _Table:
    """Entries by the nearest value that was seen, or between the two nearest ones on a line."""

    sent: Tensor
    plain: Tensor
    between: bool

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.reshape(-1).contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, len(self.sent) - 1)
        low, high = self.sent[right - 1], self.sent[right]
        share = ((flat - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
        share = share if self.between else share.round()
        return torch.lerp(self.plain[right - 1], self.plain[right], share).reshape(sent.shape)


@dataclass(frozen=True)
class _ColumnTables:
    """The nearest value that was seen in the same column: sorted [D, n]."""

    sent: Tensor
    plain: Tensor

    def __call__(self, sent: Tensor) -> Tensor:
        flat = sent.T.contiguous()
        right = torch.searchsorted(self.sent, flat).clamp(1, self.sent.shape[1] - 1)
        nearer = flat - self.sent.gather(1, right - 1) <= self.sent.gather(1, right) - flat
        return self.plain.gather(1, right - nearer.long()).T


@dataclass(frozen=True)
class _Remainder:
    step: float

    def __call__(self, sent: Tensor) -> Tensor:
        return sent - self.step * (sent / self.step).round()


def _sorted_entries(plain: Tensor, sent: Tensor) -> tuple[Tensor, Tensor]:
    y, z = sent.reshape(-1), plain.reshape(-1)
    if len(y) > _KNOTS:
        pick = torch.linspace(0, len(y) - 1, _KNOTS, device=y.device, dtype=torch.double).long()
        y, z = y[pick], z[pick]
    order = y.argsort()
    return _middles(y[order], z[order])


def _middles(sent: Tensor, plain: Tensor) -> tuple[Tensor, Tensor]:
    """Return each value that was sent once, ascending, with the middle of those that it stands for: 0 where that is one
    of them, since exact zeros are what most entries of messages are."""
    values, number = torch.unique_consecutive(sent, return_inverse=True)
    low, high = (torch.zeros_like(values).scatter_reduce(0, number, plain, end, include_self=False) for end in _ENDS)
    smallest = torch.zeros_like(values).scatter_reduce(0, number, plain.abs(), "amin", include_self=False)
    return values, torch.where(smallest == 0, 0.0, (low + high) / 2)


def table(between: bool) -> Learner:
    """Return the learner of a table of all entries; read between two values where asked, at the nearest otherwise."""

    def learned(plain: Tensor, sent: Tensor) -> RowMap | None:
        values, middles = _sorted_entries(plain, sent)
        return _Table(values, middles, between) if len(values) > 1 else None

    return learned


def table_by_column(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return a table of each column."""
    if len(sent) < 16:
        return None
    place = sent.argsort(dim=0)
    return _ColumnTables(sent.gather(0, place).T.contiguous(), plain.gather(0, place).T.contiguous())


def remainder(plain: Tensor, sent: Tensor) -> RowMap | None:
    """Return the remainder map if what was added are multiples of one step."""
    added = (sent - plain).abs().reshape(-1)
    large = added[added > 1e-3]
    if len(large) == 0:
        return None
    step = float(large.min().item())
    whole = large / step
    if float((whole - whole.round()).abs().quantile(0.9) if len(whole) <= 2**20 else 0.0) > 1e-2:
        return None
    step = float((large / whole.round()).median().item())
    return _Remainder(step)
