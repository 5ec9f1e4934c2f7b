"""Rows under masks: adding them up gives sums under the sum of the masks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.sealing import SealedRows

_CHUNK_BYTES = 2**26


@dataclass(frozen=True)
class MaskedRows(SealedRows):
    """Words of the senders or sums of them, with the bookkeeping that shows when masks cancel. It holds no key.

    Attributes:
        words: [R, D], integers modulo 2^32 or 2^64.
        aggregation: number of the aggregation in which they were masked.
        field: which tensor of the message they are.
        slot: which row of a client's mask they are under [R]; -1 for rows of zeros.
        parts: how often each member's row is in the sum [R, n].
        factor: public number by which the sum is multiplied once it is read [R].
    """

    words: Tensor
    aggregation: int
    field: int
    slot: Tensor
    parts: Tensor
    factor: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return (self.words.shape[0], self.words.shape[1])

    def combine(self, weights: Tensor) -> SealedRows:
        """Return ``weights @ rows``; an output row needs equal weights and rows under the same row of the masks."""
        row, column = weights.indices()
        count = weights.shape[0]
        factor = weights.values() * self.factor[column]
        terms = torch.bincount(row, minlength=count)
        first = (terms.cumsum(0) - terms).clamp(max=max(len(row) - 1, 0))  # entries are sorted by row
        empty = terms == 0
        slot, scale = self.slot.new_full((count,), -1), factor.new_ones(count)
        if len(row):
            slot = torch.where(empty, -1, self.slot[column][first])
            scale = torch.where(empty, 1.0, factor[first])
            if not torch.allclose(factor, scale[row], rtol=1e-6, atol=0):
                raise _unmaskable("with different weights")
            if not torch.equal(self.slot[column], slot[row]):
                raise _unmaskable("of different nodes")
        parts = torch.zeros(count, self.parts.shape[1], dtype=self.parts.dtype).index_add_(0, row, self.parts[column])
        return replace(self, words=self._sums(row, column, count), slot=slot, parts=parts, factor=scale)

    def add(self, other: SealedRows) -> SealedRows:
        """Return the sum; rows that are not of zeros must be under the same row of the masks, with equal factors."""
        assert isinstance(other, MaskedRows)
        if (self.aggregation, self.field) != (other.aggregation, other.field):
            raise _unmaskable("of different rounds")
        both = (self.slot >= 0) & (other.slot >= 0)
        if not torch.equal(self.slot[both], other.slot[both]):
            raise _unmaskable("of different nodes")
        if not torch.equal(self.factor[both], other.factor[both]):
            raise _unmaskable("with different weights")
        return replace(
            self,
            words=self.words + other.words,
            slot=torch.maximum(self.slot, other.slot),
            parts=self.parts + other.parts,
            factor=torch.where(self.slot >= 0, self.factor, other.factor),
        )

    def wire_bytes(self, splits: Tensor) -> Tensor:
        return splits.diff() * self.words.shape[1] * self.words.element_size()

    def _sums(self, row: Tensor, column: Tensor, count: int) -> Tensor:
        if len(row) == count and torch.equal(row, torch.arange(count)):
            return self.words[column]
        sums = torch.zeros(count, self.words.shape[1], dtype=self.words.dtype)
        step = max(1, _CHUNK_BYTES // max(1, self.words[:1].numel() * self.words.element_size()))
        for low in range(0, len(row), step):
            part = slice(low, low + step)
            sums.index_add_(0, row[part], self.words[column[part]])
        return sums


def _unmaskable(what: str) -> FglauditError:
    return FglauditError(
        f"masks cancel only in plain sums or means of one row per client; rows {what} were to be combined; use the"
        " defense on a payload that the server only adds up, or homomorphic encryption"
    )
