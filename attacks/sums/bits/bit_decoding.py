"""From equations to bits: bounds, decoding by weight, exact enumeration of small groups, then belief propagation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.attacks.sums.bits.belief_propagation import bit_log_odds
from fglaudit.attacks.sums.bits.binary_system import BinarySystem, binary_system, propagate, restrict, settle
from fglaudit.attacks.sums.bits.components import Posterior, solve_small
from fglaudit.attacks.sums.bits.subset_enumeration import split_by_weight
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations


@dataclass(frozen=True)
class DecodedBits:
    """Of every unknown row [U, F]: probability of a one, the most probable bit, and whether it is proven by algebra."""

    probability: Tensor
    bits: Tensor
    proven: Tensor


def without_columns(decoded: DecodedBits, unused: Tensor, log_odds: Tensor) -> DecodedBits:
    """Return ``decoded`` with the columns ``unused`` [F], of which no sum says anything, left to the prior.

    Args:
        log_odds: prior log odds of a one [U, F].
    """
    if not bool(unused.any()):
        return decoded
    unused = unused.to(log_odds.device)
    chance = torch.where(unused, torch.sigmoid(log_odds).to(decoded.probability), decoded.probability)
    bits = torch.where(unused, (log_odds > 0).to(decoded.bits), decoded.bits)
    return DecodedBits(chance, bits, decoded.proven & ~unused)


def settle_bits(system: BinarySystem, *, by_weight: bool = True) -> BinarySystem:
    """Alternate bounds and (if ``by_weight``) decoding of weighted sums until neither settles another bit."""
    system = propagate(system)
    while by_weight:
        before = int((system.bits < 0).sum().item())
        system = propagate(split_by_weight(system))
        if int((system.bits < 0).sum().item()) == before:
            break
    return system


def decode_bits(equations: NeighborEquations, log_odds: Tensor) -> DecodedBits:
    """Decode noise-free sums of binary rows.

    Args:
        log_odds: prior log odds of a one [U, F].
    """
    system = settle_bits(binary_system(equations))
    odds = log_odds.reshape(-1)[system.variables]
    while True:
        posterior, unsolved = solve_small(system, odds)
        fresh = ((system.bits < 0) & posterior.proven).nonzero().squeeze(1)
        if not len(fresh) or not bool(unsolved.any()):
            break
        system = settle_bits(settle(system, fresh, posterior.bits[fresh]))
    if bool(unsolved.any()):
        posterior = _add_large(system, odds, posterior, unsolved)
    return _spread(system, posterior, log_odds.shape)


def _add_large(system: BinarySystem, odds: Tensor, posterior: Posterior, unsolved: Tensor) -> Posterior:
    """Fill in the ``unsolved`` variables of large components by belief propagation."""
    part = restrict(system, unsolved)
    std = torch.where(part.tolerance >= 0.5, 0.1, part.tolerance.clamp(min=1e-7))
    belief = bit_log_odds(part, odds, std=std)
    probability = torch.where(unsolved, torch.sigmoid(belief), posterior.probability)
    bits = torch.where(unsolved, (belief > 0).to(torch.int8), posterior.bits)
    return Posterior(probability, bits, posterior.proven)


def _spread(system: BinarySystem, posterior: Posterior, shape: torch.Size) -> DecodedBits:
    """Write the variables into dense rows; all other bits are proven zeros."""
    device = posterior.bits.device
    probability = torch.zeros(shape, dtype=torch.float32, device=device)
    bits = torch.zeros(shape, dtype=torch.float32, device=device)
    proven = torch.ones(shape, dtype=torch.bool, device=device)
    probability.view(-1)[system.variables] = posterior.probability.float()
    bits.view(-1)[system.variables] = posterior.bits.float()
    proven.view(-1)[system.variables] = posterior.proven
    return DecodedBits(probability, bits, proven)
