"""Row-space attack on neighbour sums: solve the sums as linear equations over the unknown rows.

FedGCN section 4 argues that a sum over several neighbours protects each of them. It does not where sums overlap: the
row of neighbour j is determined exactly if and only if the unit vector e_j lies in the row space of the observer's
coefficient matrix, whatever the features are (binary or real, weighted or counts). Those rows are marked as proven; the
others get the linear estimate that changes the prior mean least, or a row that the observer knows, where known ones
repeat and one of them is likelier (:mod:`fglaudit.attacks.sums.equations.copied_rows`). Observers: a client, colluding
clients, and, if they know the edges, the server and the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import FeaturePrior, feature_prior
from fglaudit.adversary.public_rules import clip_of_rows, unused_columns
from fglaudit.attacks.sums.equations.copied_rows import New, likelier_copies, with_copies
from fglaudit.attacks.sums.equations.linear_posterior import HALF, posterior_of_sums
from fglaudit.attacks.sums.equations.neighbor_equations import neighbor_equations, no_equations
from fglaudit.attacks.sums.modelled_facts import in_errors, in_terms, in_values
from fglaudit.attacks.sums.planting import plant_lone_neighbors
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.view import View

_MOST_TOLD = 1 - 1e-6
"""Share of a row that sums with noise tell at most."""


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
        if view.public.features is not FeatureKind.REAL and not exact:
            bits = best_f1_bits(_chance(rows / level, prior)) if prior.informed else (rows > HALF * level).to(rows)
            rows = bits * level if view.public.features is FeatureKind.SCALED_BINARY else bits
        elif view.public.features is FeatureKind.BINARY:
            rows = (rows > HALF * (1.0 if clip is None else top[:, None])).to(rows)
        elif view.public.features is FeatureKind.SCALED_BINARY:
            rows = torch.where(rows > HALF * top[:, None], rows, 0.0)
        elif view.public.features is FeatureKind.REAL:
            known = view.known_rows().x.to(rows)
            rows = torch.where((solved.determined & exact)[:, None], rows, with_copies(rows, known, prior))
        if view.public.features is not FeatureKind.REAL and prior.informed and exact:  # noise is weighed above
            known, bits = view.known_rows().x.to(rows), (rows != 0).to(rows) * level
            scaled = replace(prior, mean=prior.mean * level, variance=prior.variance * level**2)
            chance = torch.where(rows != 0, prior.mean.to(rows), 1 - prior.mean.to(rows)).clamp(min=1e-6)
            copied, copies = likelier_copies(solved.mean, known, scaled, New(bits, chance.log().sum(1)))
            rows = torch.where((copied & ~(solved.determined & exact))[:, None], copies, rows)
        rows = _with_guesses(view, rows, prior, unused.to(device), level)
        confidence = torch.where(proven, 1.0, 0.0)
        # Of noise, who knows no row makes no guess: rows that are left out get the one that knows nothing.
        told = rows.any(1) | exact | prior.informed
        found = (part[told].cpu() for part in (rows.float(), equations.nodes, confidence, proven))
        return Reconstruction(*found)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_lone_neighbors(view, rng)


def _with_guesses(view: View, rows: Tensor, prior: FeaturePrior, unused: Tensor, level: float) -> Tensor:
    """Return ``rows`` [U, F] with a guess in the columns ``unused`` [F], of which no sum says anything; of discrete
    rows the entries with which the whole row has the best expected F1."""
    if not bool(unused.any()):
        return rows
    mean = prior.mean.to(rows)
    if view.public.features is FeatureKind.REAL:
        return torch.where(unused, mean, rows)
    bits = best_f1_bits(torch.where(unused, mean, (rows != 0).to(rows)))
    return torch.where(unused, bits * (level if view.public.features is FeatureKind.SCALED_BINARY else 1.0), rows)


def _chance(estimate: Tensor, prior: FeaturePrior) -> Tensor:
    """Return the probability of every bit [U, F], given its linear ``estimate`` m [U, F] from sums with noise.

    With the prior mean p and variance v, ``m - p = a (x - p) + error``, where a, the share of a row that the sums tell,
    follows from ``E (m - p)^2 = a v``, and the error's variance is ``a (1 - a) v``. Of sums that tell nothing the prior
    is left, of others the posterior of a bit.
    """
    mean = prior.mean.to(estimate)
    moved, spread = estimate - mean, prior.variance.to(estimate).mean(1, keepdim=True).clamp(min=1e-12)
    share = (moved.square().mean(1, keepdim=True) / spread).clamp(max=_MOST_TOLD)
    evidence = (moved - share * (1 - 2 * mean) / 2) / ((1 - share) * spread)
    return torch.sigmoid(mean.clamp(1e-6, 1 - 1e-6).logit() + evidence)
