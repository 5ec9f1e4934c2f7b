"""Numbers as fields of a slot: several side by side in 56 bits, so that adding slots adds every field. (Slots of other
schemes may hold fewer bits.)

A field must hold the total of a row, not only what one client sends: its width, or for fixed point its scale, is chosen
from the public bound on the total (``Aggregate.largest``), with half a unit of rounding for every summand. A value
beyond its bound is refused before it is encrypted; then no total can run into the next field.

Negative numbers: a slot is the whole number ``sum_k field_k 2^(k width)``, which is additive with negative fields too;
they are read off from the lowest one, the next being corrected by its sign. That costs a field one bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.errors import FglauditError

SLOT_BITS = 56
WIDTHS = (4, 8, 14, 18, 28, 56)
"""Of fields, in bits: those with which 56 bits hold 14, 7, 4, 3, 2 and 1 of them."""
_ROUNDING = 1e-6
"""Relative error of bounds and values, which are float32."""


def per_slot(width: int, slot_bits: int = SLOT_BITS) -> int:
    """Return how many fields of ``width`` bits a slot holds."""
    return slot_bits // width


def pack(fields: Tensor, width: int, slot_bits: int = SLOT_BITS) -> Tensor:
    """Return slots [..., n / per_slot] of ``fields`` [..., n], whole numbers in int64; per_slot divides n."""
    count = per_slot(width, slot_bits)
    place = torch.tensor([1 << (width * k) for k in range(count)])
    return (fields.reshape(*fields.shape[:-1], -1, count) * place).sum(-1)


def unpack(slots: Tensor, width: int, slot_bits: int = SLOT_BITS, *, signed: bool) -> Tensor:
    """Return the fields [..., s * per_slot] of ``slots`` [..., s], int64."""
    mask, half = (1 << width) - 1, 1 << (width - 1)
    fields, rest = [], slots
    for _ in range(per_slot(width, slot_bits)):
        low = rest & mask
        if signed:
            low = torch.where(low >= half, low - mask - 1, low)
        fields.append(low)
        rest = (rest - low) >> width
    return torch.stack(fields, -1).flatten(-2)


@dataclass(frozen=True)
class FixedPoint:
    """How every row's entries become whole numbers of a width; all tensors by row id [n].

    Attributes:
        width: bits of a field.
        scale: units per 1; 1 for whole numbers.
        largest: bound on the row's entries, see ``Aggregate.largest``.
        signed: whether entries may be negative.
        whole: whether entries are whole numbers, which are not rounded.
    """

    width: Tensor
    scale: Tensor
    largest: Tensor
    signed: bool
    whole: bool

    @staticmethod
    def of_counts(largest: Tensor, *, signed: bool, widths: tuple[int, ...] = WIDTHS) -> FixedPoint:
        """For whole numbers: every row gets the narrowest field that holds its bound.

        Raises:
            FglauditError: for a bound that no field holds.
        """
        capacity = torch.tensor([_capacity(width, signed) for width in widths])
        narrowest = torch.searchsorted(capacity, largest.ceil().long())
        if bool((narrowest == len(widths)).any()):
            raise FglauditError(
                f"whole numbers up to {int(capacity[-1])} fit a slot; got a bound of {float(largest.max()):g}; use"
                " scheme: ckks"
            )
        return FixedPoint(torch.tensor(widths)[narrowest], torch.ones_like(largest), largest, signed, True)

    @staticmethod
    def of_reals(largest: Tensor, summands: Tensor, bits: int, *, signed: bool) -> FixedPoint:
        """For real numbers: fields of ``bits``, each row scaled so that its bound just fits.

        Raises:
            FglauditError: if there are so many summands that their rounding alone fills a field.
        """
        room = _capacity(bits, signed) - summands.double() / 2 - 1
        if bool((room < 1).any()):
            raise FglauditError(
                f"a field must hold the rounding of all summands; {bits} bits do not for {int(summands.max())} of them;"
                " raise bits"
            )
        scale = torch.where(largest > 0, room / (largest.double() * (1 + _ROUNDING)).clamp(min=1e-300), 1.0)
        return FixedPoint(torch.full_like(summands, bits), scale, largest.double(), signed, False)

    def quantise(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return ``values`` [R, D] of rows ``rows`` [R] as whole numbers [R, D], int64.

        Raises:
            FglauditError: for a value outside its row's range, or a fraction where whole numbers are promised.
        """
        exact = values.double()
        if not bool(torch.isfinite(exact).all()):
            raise FglauditError("features outside the fixed-point range: a value is not finite; clean the data")
        bound = (self.largest[rows] * (1 + _ROUNDING)).unsqueeze(1)
        wrong = exact.abs() > bound
        if not self.signed:
            wrong |= exact < 0
        if bool(wrong.any()):
            place = wrong.nonzero()[0]
            low = f"-{float(bound[place[0]]):g}" if self.signed else "0"
            raise FglauditError(
                f"features outside the fixed-point range: row {int(rows[place[0]])} must lie in {low} ..."
                f" {float(bound[place[0]]):g}; got {float(exact[tuple(place)]):g}; clip the features or state their"
                " true range"
            )
        scaled = exact * self.scale[rows].unsqueeze(1)
        rounded = scaled.round()
        if self.whole and not bool((rounded == scaled).all()):
            raise FglauditError(
                "whole numbers were promised and a fraction is to be sealed; use features of whole numbers"
            )
        return rounded.long()

    def restore(self, fields: Tensor, rows: Tensor) -> Tensor:
        """Return the float64 values [R, D] of totals ``fields`` [R, D] of rows ``rows`` [R]."""
        return fields.double() / self.scale[rows].unsqueeze(1)


def _capacity(width: int, signed: bool) -> int:
    """Return the largest whole number that a field holds, and the negative of it where it is signed."""
    return (1 << (width - 1)) - 1 if signed else (1 << width) - 1
