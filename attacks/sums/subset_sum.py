"""Subset-sum attack on symmetrically normalised neighbour sums: the known weights identify the terms.

With ``A_ij = 1 / sqrt(D_i D_j)`` (Kipf and Welling's normalisation, FedGCN section 3) and binary features, every entry
of a sum is a subset sum of the known coefficients ``1 / sqrt(D_j)`` of the neighbours, and rows are sparse: nearly
always one subset fits. A client that knows its neighbours' degrees infers who has which word, except among neighbours
of equal degree, of which it learns how many have it. Rows of several sums are joined: bits that one sum settles are
subtracted from the others until nothing changes.

Row-normalised rows add an unknown integer per neighbour, its number of entries, and so do unknown degrees; both show in
the values that a sum takes (:mod:`fglaudit.attacks.sums.equations.scale_search`). They are found, not proven, so such
rows are never marked as proven.

What stays open, and why that is the ceiling: neighbours of equal degree that share all of the observer's sums enter
every equation with the same coefficient, so swapping their rows changes no message; likewise degrees whose ratio is the
square of a rational (2 and 8, say) where the counts happen to fit both ways. Open bits are set to the most probable
pattern under the prior.

``fglaudit run fedgcn-leaks --root DIR`` measures it on Cora.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import kept_columns, row_clip, sealed
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import noise_on, unused_columns
from fglaudit.attacks.sums.bits.bit_decoding import DecodedBits, decode_bits, without_columns
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations, neighbor_equations, no_equations
from fglaudit.attacks.sums.equations.row_scales import resolve_scales
from fglaudit.attacks.sums.modelled_facts import in_terms
from fglaudit.attacks.sums.plain_sums import plain_sums
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.structure import COUNTS, NORMALISED, ROW_MEAN, Sums
from fglaudit.view import View


@dataclass(frozen=True)
class SubsetSum(Attack):
    """Known degrees make every entry of a normalised sum a subset sum that can be decoded.

    Attributes:
        joint: decode all sums together; False decodes each alone and keeps the reading with the most settled bits.
    """

    name: ClassVar[str] = "subset-sum"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    joint: bool = True

    def models(self, fact: Fact) -> bool:
        return in_terms(fact) or sealed(fact, NeighborSums) or row_clip(fact) or kept_columns(fact)

    def unsupported(self, view: View) -> str | None:
        if view.public.features is FeatureKind.REAL:
            return "subset sums need rows whose non-zero entries are equal; these are real-valued"
        stated = view.public.structure.get(Sums)
        if stated is not None and stated.weighting != NORMALISED:
            words = {COUNTS: "plain counts", ROW_MEAN: "means"}[stated.weighting]
            return f"{words} have no weights to tell neighbours apart; use row-space or maximum-a-posteriori"
        if noise_on(view, NeighborSums, "sums") is not None:
            return "subset sums are decoded from noise-free sums; use maximum-a-posteriori on noisy ones"
        return no_equations(view, need_degrees=False)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = neighbor_equations(view)
        if self.joint:
            plain = plain_sums(view, device)
            decoded, odds, scales = plain.decoded, plain.odds, plain.scales
        else:
            prior = feature_prior(view, equations.nodes)
            scaled, scales = resolve_scales(view, equations, prior)
            odds = prior.mean.clamp(1e-6, 1 - 1e-6).logit().to(device)
            decoded = _row_by_row(scaled.to(device), odds)
        decoded = without_columns(decoded, unused_columns(view), odds)
        chance = torch.where(decoded.bits > 0, decoded.probability, 1 - decoded.probability)
        confidence = torch.where(decoded.proven, 1.0, chance).clamp(min=1e-12).log().sum(1).exp()
        rows = scales.apply(decoded.bits.cpu())
        proven = decoded.proven.all(1).cpu() & scales.certain & bool((equations.std == 0).all())
        return Reconstruction(rows, equations.nodes.cpu(), confidence.cpu(), proven)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng)


def _row_by_row(equations: NeighborEquations, odds: Tensor) -> DecodedBits:
    """Decode with a copy of every unknown per sum; of the copies of a row the one with the most settled bits counts."""
    terms = torch.arange(len(equations.columns), device=odds.device)
    alone = dataclasses.replace(equations, nodes=equations.nodes[equations.columns], columns=terms)
    decoded = decode_bits(alone, odds[equations.columns])
    settled = decoded.proven.sum(1)
    order = settled.argsort(stable=True)
    best = torch.empty(equations.num_unknowns, dtype=torch.long, device=odds.device)
    best[equations.columns[order]] = order  # the last write, the most settled copy, stays
    return DecodedBits(decoded.probability[best], decoded.bits[best], decoded.proven[best])
