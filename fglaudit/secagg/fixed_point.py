"""Real numbers as integers modulo 2^bits, such that a sum of a known number of them cannot overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from fglaudit.errors import FglauditError

WORDS = {32: torch.int32, 64: torch.int64}
"""Integer types by their bits; addition wraps around."""
ROUNDING = 2.0**-20
"""Room for the rounding of values to float32, relative to the bound on them."""
_WHOLE = 1e-3


@dataclass(frozen=True)
class ModularFixedPoint:
    """``round(value 2^fraction)`` modulo ``2^bits``.

    Attributes:
        fraction: binary digits behind the point; negative for steps above 1.
        largest: bound on the absolute values of what is encoded.
        integers: whether only whole numbers are encoded.
    """

    bits: int
    fraction: int
    largest: float
    integers: bool = False

    @staticmethod
    def of(largest: float, summands: int, bits: int, *, integers: bool = False) -> ModularFixedPoint:
        """Return the finest encoding in which sums of ``summands`` values up to ``largest`` stay below 2^(bits - 1).

        Raises:
            FglauditError: if whole numbers do not fit.
        """
        room = (2 ** (bits - 1) - 1) // summands
        if integers:
            if largest > room:
                raise FglauditError(
                    f"sums of {summands} whole numbers up to {largest:g} must fit {bits} bits; they do not; use"
                    " bits: 64"
                )
            return ModularFixedPoint(bits, 0, float(largest), True)
        bound = Fraction(largest) * Fraction(1 + ROUNDING)
        fraction = bits
        while bound * Fraction(2) ** fraction + Fraction(1, 2) > room:
            fraction -= 1
        return ModularFixedPoint(bits, fraction, float(bound))

    def rounding(self, summands: int) -> float:
        """Return how far the sum of ``summands`` encoded values may be off."""
        return 0.0 if self.integers else summands * 2.0 ** -(self.fraction + 1)

    def encode(self, values: Tensor, what: str = "what is masked") -> Tensor:
        """Return ``values`` as words, of the same shape, on the CPU; ``what`` names them in errors.

        Raises:
            FglauditError: if a value is out of range, not a number, or not whole where whole numbers were promised.
        """
        exact = values.detach().cpu().double()
        top = exact.abs().amax() if exact.numel() else exact.new_zeros(())
        if not bool(top <= self.largest):  # also where it is not a number
            raise FglauditError(
                f"values to be masked must lie within +-{self.largest:g}; got {float(top):g} in {what};"
                f" {_larger(float(top))}: a smaller learning_rate, row-normalised or standardised features"
            )
        scaled = exact * 2.0**self.fraction
        rounded = scaled.round()
        if self.integers and bool(((rounded - scaled).abs() > _WHOLE).any()):
            raise FglauditError(
                "whole numbers were promised; got fractions; this protocol's aggregates() must not say integers"
            )
        return rounded.long().to(WORDS[self.bits])

    def decode(self, words: Tensor) -> Tensor:
        """Return the values [...] of words or of their sums modulo ``2^bits``, float64."""
        return words.double() * 2.0**-self.fraction


def _larger(top: float) -> str:
    """Return how to make room for absolute values up to ``top``."""
    if not math.isfinite(top):
        return "no `range` is large enough for that; make values smaller"
    room = 10 ** math.ceil(math.log10(2 * top))  # later rounds may have larger ones
    return (
        f"set `range: {float(room):g}` of the defense{', with `bits: 64`' * (room > _COARSE)}, or make values smaller"
    )


_COARSE = 1000
"""Above such a bound words of 32 bits leave few digits behind the point."""
