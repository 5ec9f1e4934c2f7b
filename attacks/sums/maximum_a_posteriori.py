"""Maximum a posteriori attack on neighbour sums: all equations, the noise and the prior weighed together.

Noise-free sums of binary rows are first decoded by algebra (bounds, weights, exact enumeration of small groups); belief
propagation then gives every open bit its posterior under the prior. Sums with noise (a differential privacy mechanism
whose distribution and scale are public) enter belief propagation as Gaussian likelihoods; as the noise vanishes this
becomes the exact decoder. Real-valued rows get the Gaussian posterior mean. Each discrete row takes the entries with
the best expected F1 under the posterior, which for a settled row is the row itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, unused_columns
from fglaudit.attacks.sums.bits.belief_propagation import bit_log_odds
from fglaudit.attacks.sums.bits.binary_system import binary_system
from fglaudit.attacks.sums.bits.bit_decoding import DecodedBits, without_columns
from fglaudit.attacks.sums.equations.linear_posterior import posterior_of_sums
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations, neighbor_equations, no_equations
from fglaudit.attacks.sums.equations.row_scales import RowScales, resolve_scales
from fglaudit.attacks.sums.modelled_facts import in_errors, in_terms, in_values
from fglaudit.attacks.sums.plain_sums import plain_sums
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.facts import Additive, Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.view import View

_TERMS_AT_ONCE = 2**22
"""Of equations with noise: about half a gigabyte."""
_LIKELY = 4.0
"""A bit is open unless it contradicts an entry by this many standard deviations of the noise."""


@dataclass(frozen=True)
class MaximumAPosteriori(Attack):
    """Likeliest rows given all sums, the noise of the defense and what known rows look like.

    Attributes:
        rounds: rounds of belief propagation on noisy sums.
    """

    name: ClassVar[str] = "maximum-a-posteriori"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "f1"
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive,)
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = 8

    def models(self, fact: Fact) -> bool:
        """Noise and grids enter the likelihood of sums by their standard deviation."""
        return in_terms(fact) or in_values(fact) or in_errors(fact)

    def unsupported(self, view: View) -> str | None:
        return no_equations(view, need_degrees=view.public.features is FeatureKind.REAL)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = neighbor_equations(view)
        prior = feature_prior(view, equations.nodes)
        if view.public.features is FeatureKind.REAL:
            solved = posterior_of_sums(view, device, 1.0)
            unused = unused_columns(view)
            mean = torch.where(unused, prior.mean, solved.mean.cpu())
            whole = bool((equations.std == 0).all()) and clip_of_rows(view) is None and not bool(unused.any())
            exact = solved.certain() & whole
            return Reconstruction(mean.float(), equations.nodes, exact.float().cpu(), exact.cpu())
        if bool((equations.std > 0).any()):
            equations, scales = resolve_scales(view, equations, prior)
            odds = prior.mean.clamp(1e-6, 1 - 1e-6).logit().to(device)
            decoded = _decode_noisy(equations.to(device), odds, self.rounds)
        else:
            plain = plain_sums(view, device)
            decoded, odds, scales = plain.decoded, plain.odds, plain.scales
        return _decided(equations.nodes, without_columns(decoded, unused_columns(view), odds), scales)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng)


def _decode_noisy(equations: NeighborEquations, odds: Tensor, rounds: int) -> DecodedBits:
    """Return the posterior of every bit from sums with noise.

    No equation joins two columns: they are solved so many at a time that their terms fit memory, and those whose
    posterior stands still are done.
    """
    probability = torch.zeros(odds.shape, device=odds.device)
    features = odds.shape[1]
    width = max(1, _TERMS_AT_ONCE // max(1, len(equations.rows)))
    for low in range(0, features, width):
        columns = slice(low, low + width)
        rounding = equations.tolerance[:, columns]
        std = (equations.std[:, None] ** 2 + rounding**2).sqrt()
        values = equations.values[:, columns].contiguous()
        system = binary_system(dataclasses.replace(equations, values=values, tolerance=_LIKELY * std))
        prior, share = odds[:, columns], values.shape[1] / features
        std = system.tolerance / _LIKELY
        belief = bit_log_odds(system, prior.reshape(-1)[system.variables], std=std, rounds=rounds, share=share)
        part = torch.zeros(prior.shape, device=odds.device)
        part.view(-1)[system.variables] = torch.sigmoid(belief).float()
        probability[:, columns] = part
    return DecodedBits(probability, (probability > 0.5).float(), torch.zeros_like(probability, dtype=torch.bool))


def _decided(nodes: Tensor, decoded: DecodedBits, scales: RowScales) -> Reconstruction:
    """Return for every row the entries with the best expected F1 under independent bits."""
    chance = torch.where(decoded.proven, decoded.bits, decoded.probability)
    bits = best_f1_bits(chance)
    right = torch.where(bits > 0, chance, 1 - chance)
    confidence = right.clamp(min=1e-12).log().sum(1).exp()
    rows = scales.apply(bits.cpu())
    proven = decoded.proven.all(1).cpu() & scales.certain
    return Reconstruction(rows, nodes.cpu(), confidence.cpu(), proven)
