"""Noise-free sums of binary rows, decoded: what several attacks on the same view start from, made once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.attacks.sums.bits.bit_decoding import DecodedBits, decode_bits
from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations
from fglaudit.attacks.sums.equations.row_scales import RowScales, resolve_scales
from fglaudit.view import View


@dataclass(frozen=True)
class PlainSums:
    """Bits of the unknown rows.

    Attributes:
        nodes: global ids [U].
        probability, bits, proven: as of :class:`DecodedBits` [U, F].
        odds: prior log odds of a one [U, F].
        normalised, certain: as of :class:`RowScales`.
    """

    nodes: Tensor
    probability: Tensor
    bits: Tensor
    proven: Tensor
    odds: Tensor
    normalised: bool
    certain: Tensor

    @property
    def decoded(self) -> DecodedBits:
        return DecodedBits(self.probability, self.bits, self.proven)

    @property
    def scales(self) -> RowScales:
        return RowScales(self.normalised, self.certain)


@once_per_view
def plain_sums(view: View, device: torch.device) -> PlainSums:
    """Decode the sums that ``view`` holds, all together."""
    equations = neighbor_equations(view)
    prior = feature_prior(view, equations.nodes)
    equations, scales = resolve_scales(view, equations, prior)
    odds = prior.mean.clamp(1e-6, 1 - 1e-6).logit().to(device)
    decoded = decode_bits(equations.to(device), odds)
    return PlainSums(
        equations.nodes, decoded.probability, decoded.bits, decoded.proven, odds, scales.normalised, scales.certain
    )
