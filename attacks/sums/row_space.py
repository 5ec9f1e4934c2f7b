"""Row-space attack on neighbour sums: solve the sums as linear equations over the unknown rows.

FedGCN section 4 argues that a sum over several neighbours protects each of them. It does not where sums overlap: the
row of neighbour j is determined exactly if and only if the unit vector e_j lies in the row space of the observer's
coefficient matrix, whatever the features are (binary or real, weighted or counts). Those rows are marked as proven; the
others get the linear estimate that changes the prior mean least. Observers: a client, colluding clients, and, if they
know the edges, the server and the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, unused_columns
from fglaudit.attacks.sums.equations.linear_posterior import HALF, posterior_of_sums
from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations, no_equations
from fglaudit.attacks.sums.modelled_facts import in_errors, in_terms, in_values
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class RowSpace(Attack):
    """Solve the sums as linear equations and show which rows they determine. For any features."""

    name: ClassVar[str] = "row-space"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    def models(self, fact: Fact) -> bool:
        """Of noise and grids the standard deviation weighs equations against the prior."""
        return in_terms(fact) or in_values(fact) or in_errors(fact)

    def unsupported(self, view: View) -> str | None:
        return no_equations(view, need_degrees=True)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        equations = neighbor_equations(view).to(device)
        prior = feature_prior(view, equations.nodes.cpu())
        clip, unused = clip_of_rows(view), unused_columns(view)
        level = 1.0 if view.public.features is FeatureKind.REAL else prior.level
        if clip is not None and view.public.features is not FeatureKind.REAL:  # the level of a row of typical size
            level = min(level, clip.bound / max(prior.size, 1.0) ** (1.0 if clip.norm == "L1" else 0.5))
        solved = posterior_of_sums(view, device, float(level))
        rows = solved.mean.clone()  # others share it
        top = rows.abs().amax(1).clamp(min=1e-12)
        exact = bool((equations.std == 0).all())
        proven = solved.certain(0.0 if view.public.features is FeatureKind.REAL else level) & exact
        proven &= clip is None and not bool(unused.any())
        if view.public.features is FeatureKind.BINARY and clip is None:
            rows = (rows > HALF).to(rows)
        elif view.public.features is FeatureKind.BINARY:
            rows = (rows > HALF * (top[:, None] if exact else level)).to(rows)
        elif view.public.features is FeatureKind.SCALED_BINARY:
            rows = torch.where(rows > HALF * top[:, None], rows, 0.0)
        rows[:, unused.to(device)] = self._guess(view, prior.mean)[:, unused].to(rows)
        confidence = torch.where(proven, 1.0, 0.0)
        return Reconstruction(rows.float().cpu(), equations.nodes.cpu(), confidence.cpu(), proven.cpu())

    @staticmethod
    def _guess(view: View, mean: Tensor) -> Tensor:
        """Return what the prior alone says of rows [U, F]."""
        return mean if view.public.features is FeatureKind.REAL else mean.round()

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng)
