"""Input rows that several models read from one table, so that no model holds a copy of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 2**22
"""Of rows that are read from the table at a time: more would not stay in the cache until they are multiplied."""


@dataclass(frozen=True)
class SharedRows:
    """Rows ``table[index]``.

    Attributes:
        table: [T, F].
        index: [M], or [K, R] for R rows of each of K models.
        density: share of the table's entries that are not zero.
    """

    table: Tensor
    index: Tensor
    density: float

    @staticmethod
    def of(table: Tensor, index: Tensor) -> SharedRows:
        return SharedRows(table, index, int(torch.count_nonzero(table).item()) / max(1, table.numel()))

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.index.shape, self.table.shape[1])

    def __getitem__(self, rows: Tensor | slice) -> SharedRows:
        """Return some of the rows."""
        return SharedRows(self.table, self.index[rows], self.density)

    def dense(self) -> Tensor:
        """Return the rows in memory of their own."""
        return self.table.index_select(0, self.index.flatten()).view(self.shape)

    def __matmul__(self, weights: Tensor) -> Tensor:
        """Return the products [K, R, d] with ``weights`` [K, F, d]; gradients flow to ``weights``."""
        product: Tensor = _Product.apply(self, weights)  # type: ignore[no-untyped-call]
        return product

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield places in R and the rows there [K, r, F], in memory of their own."""
        clients, rows = self.index.shape
        step = max(1, CHUNK_BYTES // max(1, self.table.shape[1] * self.table.element_size() * clients))
        for low in range(0, rows, step):
            part = slice(low, low + step)
            yield part, SharedRows(self.table, self.index[:, part], self.density).dense()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(rows: SharedRows, weights: Tensor) -> Tensor:
        result = weights.new_empty(*rows.index.shape, weights.shape[2])
        for part, chunk in rows.chunks():
            result[:, part] = chunk @ weights
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SharedRows, Tensor], output: Tensor) -> None:
        ctx.rows = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        gradient, rows = grads[0], ctx.rows
        total = gradient.new_zeros(len(gradient), rows.table.shape[1], gradient.shape[2])
        for part, chunk in rows.chunks():
            total.baddbmm_(chunk.transpose(1, 2), gradient[:, part])
        return None, total


# Torch asks for the signature in every call, and would find it out anew.
_Product.forward.__signature__ = inspect.signature(_Product.forward)  # type: ignore[attr-defined]
