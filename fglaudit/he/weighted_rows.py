"""Rows in ckks ciphertexts of their own, for servers that multiply rows by public numbers.

A row of D numbers takes D / (N / 2) ciphertexts, rounded up, that hold nothing else: any public combination of rows is
then a combination of ciphertexts (:mod:`fglaudit.he.packed_rows` packs rows closer, for plain sums alone). What the
server learns is which rows exist and how wide they are.

* Where weights differ within a row (``products``), every summand is multiplied once, by an encoded weight that decrypts
  into the result: its receiver does not learn the weights. There is room for one product.
* Where they are one common number (a mean), the server adds ciphertexts up, and the number travels beside the sum.

Wrong results are impossible: no value beyond ``largest`` is encrypted, and no row is made whose absolute weights add up
to more than ``weight``; the primes hold the product of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.ckks import WEIGHT_BITS, Ckks
from fglaudit.sealing import SealedRows

_SAME = 1e-12
"""Relative difference below which weights of a mean are one number."""


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        blocks: its ciphertexts; None where all numbers are 0.
        factor: what to multiply the decrypted numbers with.
        weight: sum of the absolute weights of the fresh rows in the ciphertexts.
        fresh: whether they are as a client made them.
        product: whether they were multiplied.
    """

    blocks: tuple[Any, ...]
    factor: float = 1.0
    weight: float = 1.0
    fresh: bool = True
    product: bool = False

    @property
    def empty(self) -> bool:
        return all(block is None for block in self.blocks)


@dataclass(frozen=True)
class WeightedRows(SealedRows):
    """See the module docstring.

    Attributes:
        scheme: of all rows.
        rows: [R].
        columns: numbers in a segment.
        segments: how many of them were joined in each row; each starts with a ciphertext of its own.
    """

    scheme: RowScheme
    rows: tuple[Row, ...]
    columns: int
    segments: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.segments * self.columns

    def combine(self, weights: Tensor) -> WeightedRows:
        (out, column), values = weights.indices(), weights.values()
        per_row = torch.bincount(out, minlength=weights.shape[0]).tolist()
        made = []
        for picked, factors in zip(torch.split(column, per_row), torch.split(values, per_row), strict=True):
            made.append(self._combined([self.rows[k] for k in picked.tolist()], factors.tolist()))
        return replace(self, rows=tuple(made))

    def _combined(self, rows: Sequence[Row], weights: Sequence[float]) -> Row:
        pairs = [(row, w * row.factor) for row, w in zip(rows, weights, strict=True) if w != 0 and not row.empty]
        if not pairs:
            return self._zeros()
        rows, weights = [row for row, _ in pairs], [w for _, w in pairs]
        if len(rows) == 1 and weights[0] == rows[0].factor:
            return rows[0]
        first = weights[0]
        if all(abs(w - first) <= _SAME * abs(first) for w in weights) and (first == 1 or not self.scheme.products):
            return self._checked(self.scheme.total(rows, first))
        return self._checked(self.scheme.weighted(rows, weights))

    def _zeros(self) -> Row:
        return Row((None,) * (self.segments * self.scheme.blocks(self.columns)), weight=0.0)

    def _checked(self, row: Row) -> Row:
        if row.weight > self.scheme.weight * (1 + _SAME):
            raise FglauditError(
                f"ciphertexts have room for rows whose absolute weights add up to {self.scheme.weight:g}; got"
                f" {row.weight:g}; the protocol's `aggregates` must state the true bound"
            )
        return row

    def add(self, other: SealedRows) -> WeightedRows:
        if not isinstance(other, WeightedRows) or other.scheme is not self.scheme or other.shape != self.shape:
            raise FglauditError(
                "sealed rows are added to sealed rows of the same payload and shape; keep payloads apart"
            )
        both = zip(self.rows, other.rows, strict=True)
        return replace(self, rows=tuple(self._checked(self.scheme.sum_of_two(a, b)) for a, b in both))

    def join(self, count: int) -> WeightedRows:
        grouped = [self.rows[low : low + count] for low in range(0, len(self.rows), count)]
        return replace(self, rows=tuple(map(self._joined, grouped)), segments=count * self.segments)

    def _joined(self, rows: Sequence[Row]) -> Row:
        full = [row for row in rows if not row.empty]
        if any((r.factor, r.fresh, r.product) != (full[0].factor, full[0].fresh, full[0].product) for r in full):
            full = [self.scheme.settled(row) for row in full]
            rows = [row if row.empty else self.scheme.settled(row) for row in rows]
        blocks = tuple(block for row in rows for block in row.blocks)
        return replace(full[0], blocks=blocks, weight=max(r.weight for r in full)) if full else Row(blocks, weight=0.0)

    def wire_bytes(self, splits: Tensor) -> Tensor:
        size = torch.tensor([self.scheme.row_bytes(row) for row in self.rows], dtype=torch.long)
        total = torch.cat([size.new_zeros(1), size.cumsum(0)])
        return total[splits].diff()

    def opened(self) -> Tensor:
        """Return the values [R, D] in float64, as clients with the key read them.

        All who open one ciphertext add the same flooding noise, as clients do that draw it with a key they share:
        models stay equal.
        """
        place: dict[int, int] = {}
        ciphertexts: list[Any] = []
        for block in (block for row in self.rows for block in row.blocks if block is not None):
            if id(block) not in place:
                place[id(block)] = len(ciphertexts)
                ciphertexts.append(block)
        if not ciphertexts:
            return torch.zeros(self.shape, dtype=torch.double)
        read = self.scheme.codec.decrypt(ciphertexts)
        read = torch.cat([read.new_zeros(1, read.shape[1]), read])
        index = (
            torch.tensor([[-1 if block is None else place[id(block)] for block in row.blocks] for row in self.rows]) + 1
        )
        values = read[index.view(len(self.rows), self.segments, -1)].flatten(2)[:, :, : self.columns]
        factor = torch.tensor([row.factor for row in self.rows], dtype=torch.double)
        return values.flatten(1) * factor.unsqueeze(1)


class RowScheme:
    """How rows of one payload are encrypted and computed with.

    Args:
        products: whether weights differ within a row.
        largest: bound on the absolute values that clients encrypt.
        weight: bound on the sum of a row's absolute weights; without products, on the number of its summands.
    """

    def __init__(self, codec: Ckks, *, products: bool, largest: float, weight: float) -> None:
        self.codec, self.products, self.largest, self.weight = codec, products, largest, weight

    def blocks(self, columns: int) -> int:
        """Return how many ciphertexts ``columns`` numbers take."""
        return -(-columns // self.codec.parameters.slots)

    def encrypted(self, values: Tensor) -> WeightedRows:
        """Return ``values`` [R, D] encrypted row by row.

        Raises:
            FglauditError: for a value beyond ``largest``.
        """
        exact = values.detach().double().cpu()
        worst = float(exact.abs().max().item()) if exact.numel() else 0.0
        if not worst <= self.largest:
            raise FglauditError(
                f"values outside the range of ckks: its primes were chosen for absolute values up to {self.largest:g};"
                f" got {worst:g}; scale features, or raise largest"
            )
        columns, slots = exact.shape[1], self.codec.parameters.slots
        padded = torch.nn.functional.pad(exact, (0, self.blocks(columns) * slots - columns))
        per_row = padded.view(len(exact), -1, slots)
        return WeightedRows(self, tuple(Row(tuple(self.codec.encrypt(row))) for row in per_row), columns)

    def total(self, rows: Sequence[Row], factor: float) -> Row:
        """Return ``factor`` times the sum of ``rows``, all fresh or all sums."""
        if len(rows) == 1:
            return replace(rows[0], factor=factor)
        if any(row.product for row in rows):
            rows = [self.settled(replace(row, factor=1.0)) for row in rows]
        blocks = tuple(map(self._added, zip(*(row.blocks for row in rows), strict=True)))
        return Row(blocks, factor, sum(row.weight for row in rows), fresh=False, product=rows[0].product)

    def _added(self, ciphertexts: Sequence[Any]) -> Any:
        present = [ciphertext for ciphertext in ciphertexts if ciphertext is not None]
        if len(present) < 2:
            return present[0] if present else None
        return self.codec.total(present)

    def weighted(self, rows: Sequence[Row], weights: Sequence[float]) -> Row:
        """Return the combination of ``rows`` with ``weights``, which take the place of the rows' factors."""
        if not self.products:
            raise FglauditError(
                "these ciphertexts have no room for products; the protocol's `aggregates` must say `weighted`"
            )
        if any(row.product for row in rows):
            raise FglauditError(
                "ciphertexts have room for one product; a second one takes a longer chain of primes; the server must"
                " multiply once"
            )
        kept = [(row, w) for row, w in zip(rows, weights, strict=True) if abs(w) >= 2.0**-WEIGHT_BITS]
        if not kept:
            return Row((None,) * len(rows[0].blocks), weight=0.0)
        columns = zip(*([(block, w) for block in row.blocks] for row, w in kept), strict=True)
        weight = sum(row.weight * abs(w) for row, w in kept)
        return Row(tuple(map(self._mixed, columns)), 1.0, weight, fresh=False, product=True)

    def _mixed(self, column: Sequence[tuple[Any, float]]) -> Any:
        present = [(block, w) for block, w in column if block is not None]
        return self.codec.weighted_sum(*zip(*present, strict=True)) if present else None

    def settled(self, row: Row) -> Row:
        """Return ``row`` multiplied by its factor, so that rows of different origin can be added."""
        return row if row.product and row.factor == 1 else self.weighted([row], [row.factor])

    def sum_of_two(self, a: Row, b: Row) -> Row:
        if a.empty or b.empty:
            return b if a.empty else a
        if (a.product, a.factor) != (b.product, b.factor):
            a, b = self.settled(a), self.settled(b)
        return self.total([a, b], a.factor)

    def row_bytes(self, row: Row) -> int:
        parameters = self.codec.parameters
        size = parameters.fresh_bytes if row.fresh else parameters.full_bytes
        return size * sum(block is not None for block in row.blocks)
