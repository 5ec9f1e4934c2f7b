"""Level of the non-zero entries: raw binary rows, rows normalised to sum one, rows clipped by a defense."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import FeaturePrior
from fglaudit.adversary.public_rules import clip_of_rows
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations
from fglaudit.attacks.sums.equations.scale_search import fill_counts, fill_degrees
from fglaudit.graph import FeatureKind
from fglaudit.view import View

_LARGEST_COUNT = 96
_LARGEST_DEGREE = 400
_SEARCHABLE_NOISE = 1e-3
"""Noise above this standard deviation hides the integer of single entries; the mean level of known rows is used."""


@dataclass(frozen=True)
class RowScales:
    """How bits become rows.

    Attributes:
        normalised: whether a row's entries are one over their number.
        certain: whether no scale or degree of the row's equations had to be searched for [U].
    """

    normalised: bool
    certain: Tensor

    def apply(self, bits: Tensor) -> Tensor:
        """Return rows from ``bits`` [U, F]."""
        return bits / bits.sum(1, keepdim=True).clamp(min=1) if self.normalised else bits


def resolve_scales(
    view: View, equations: NeighborEquations, prior: FeaturePrior
) -> tuple[NeighborEquations, RowScales]:
    """Return equations over bits, with all coefficients known, and how to turn bits into rows."""
    certain = torch.ones(equations.num_unknowns, dtype=torch.bool)
    normalised = view.public.features is FeatureKind.SCALED_BINARY
    unknown = equations.coefficients.isnan() & (equations.hidden == 0)[equations.rows]
    if bool(unknown.any()):
        largest = min(_LARGEST_DEGREE, view.public.num_nodes)
        complete = _complete_rows(equations)
        degrees = torch.cat([client.degrees for client in view.own]) + 1
        equations = fill_degrees(complete, prior.size, degrees, largest)
        certain[:] = False
    stated = clip_of_rows(view)
    clip = None if stated is None else stated.bound
    power = 1.0 if stated is not None and stated.norm == "L1" else 0.5  # m ones have the norm m to this power
    if not normalised and clip is None:
        return equations, RowScales(normalised, certain)
    certain[:] = False
    if float(equations.std.max().item()) > _SEARCHABLE_NOISE:
        level = prior.level if normalised else min(1.0, float(clip or 1.0) / max(prior.size, 1.0) ** power)
        return dataclasses.replace(equations, coefficients=equations.coefficients * level), RowScales(
            normalised, certain
        )
    limit = float("inf") if clip is None else float(clip)

    def value(count: Tensor) -> Tensor:
        if normalised:  # entries 1 / count, norm count^power / count, scaled down to the clip
            return torch.minimum(1 / count, limit / count**power)
        return (limit / count**power).clamp(max=1.0)

    noisy = dataclasses.replace(equations, tolerance=equations.tolerance + 3 * equations.std[:, None])
    filled = fill_counts(noisy, value, (view.known_rows().x != 0).sum(1), _LARGEST_COUNT)
    return dataclasses.replace(equations, coefficients=filled.coefficients), RowScales(normalised, certain)


def _complete_rows(equations: NeighborEquations) -> NeighborEquations:
    """Set unknown coefficients of incomplete rows to zero, so that their terms bound nothing."""
    partial = equations.coefficients.isnan() & (equations.hidden > 0)[equations.rows]
    return dataclasses.replace(equations, coefficients=torch.where(partial, 0.0, equations.coefficients))
