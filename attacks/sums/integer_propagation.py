"""Integer propagation on neighbour sums of binary rows: bounds alone, entry by entry.

An entry of zero shows that no neighbour has the word; an entry equal to the sum of all open coefficients shows that all
have it; and a bit whose coefficient exceeds the remainder of an entry is zero. Settled bits are subtracted and the
bounds applied again until nothing changes. Works on plain counts as on weighted sums and is combined with the rows that
linear algebra determines (:mod:`fglaudit.attacks.sums.row_space`). Open bits are guessed by the linear estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.adversary.modelled import kept_columns, sealed
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, noise_on, unused_columns
from fglaudit.attacks.sums.bits.binary_system import binary_system
from fglaudit.attacks.sums.bits.bit_decoding import settle_bits
from fglaudit.attacks.sums.equations.linear_posterior import HALF, posterior_of_sums
from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations, no_equations
from fglaudit.attacks.sums.modelled_facts import in_terms
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class IntegerPropagation(Attack):
    """Bounds on who can have a word, applied until nothing changes."""

    name: ClassVar[str] = "integer-propagation"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        return in_terms(fact) or sealed(fact, NeighborSums) or kept_columns(fact)

    def unsupported(self, view: View) -> str | None:
        if view.public.features is not FeatureKind.BINARY:
            return f"bounds on counts need binary features; these are {view.public.features}"
        if noise_on(view, NeighborSums, "sums") is not None:
            return "bounds hold for noise-free sums only; use maximum-a-posteriori on noisy ones"
        return no_equations(view, need_degrees=True)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = neighbor_equations(view).to(device)
        prior = feature_prior(view, equations.nodes.cpu())
        mean = prior.mean if prior.informed else torch.zeros_like(prior.mean)
        solved = posterior_of_sums(view, device, 1.0)
        rows = (solved.mean > HALF).to(solved.mean)
        determined = solved.determined & (solved.error < 0.25)
        system = settle_bits(binary_system(equations), by_weight=False)
        zero = torch.ones(rows.shape, dtype=torch.bool, device=device)
        zero.view(-1)[system.variables] = False
        bits = torch.where(zero, 0, -1).to(torch.int8)
        bits.view(-1)[system.variables] = system.bits
        rows = torch.where((bits >= 0) & ~determined[:, None], bits.to(rows), rows)
        unused = unused_columns(view)
        rows[:, unused.to(device)] = mean[:, unused].round().to(rows)
        settled = (bits >= 0).double().mean(1)
        exact = bool((equations.std == 0).all()) and clip_of_rows(view) is None and not bool(unused.any())
        proven = (determined | (settled == 1)) & exact
        confidence = torch.where(proven, 1.0, 0.0)
        return Reconstruction(rows.float().cpu(), equations.nodes.cpu(), confidence.cpu(), proven.cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng)
