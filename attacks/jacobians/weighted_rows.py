"""Assignment of rows found up to a weight A_kj to nodes, and their scale.

A row arrives as ``v = A_kj x_j / S``. Discrete rows determine their weight: all non-zero entries of x_j equal a level
that is 1, or one over their number. For real-valued rows the length is evidence: ``log |v| = log A_kj - log S + log
|x_j|``. If the lengths |x_j| have one distribution, the most probable assignment gives the longest found row to the
largest weight and so on (the assignment problem with squared differences on a line). Where fewer rows were found than
there are, the best monotone assignment leaves weights unmatched.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fglaudit.attacks.jacobians.mixture_rows import MixtureRows
from fglaudit.graph import ClientGraph, FeatureKind
from fglaudit.interfaces import Reconstruction
from fglaudit.view import View

_SAME = 1e-4
"""Relative difference of weights that rounding cannot bridge."""


def name_rows(view: View, own: ClientGraph, found: MixtureRows, weights: Tensor | None) -> Reconstruction:
    """Return the rows found by client ``own`` with their nodes (-1 where unknown) and, if known, their scale.

    Args:
        weights: A_kj of all nodes [N], or None if the observer does not know them; real-valued rows then keep the scale
            they were received with, relative to the longest.
    """
    kind = view.public.features
    samples = own.x.shape[1] if own.x.dim() == 3 else 1
    if kind is FeatureKind.REAL:
        rows, nodes, certain = _by_length(view, own, found.rows, found.claimed, weights, samples)
    else:
        rows, nodes, certain = _by_level(found.rows, weights, samples, scaled=kind is FeatureKind.SCALED_BINARY)
    sure = found.claimed & found.signed
    confidence = torch.where(sure & certain, 0.95, torch.where(found.claimed, 0.5, 0.1))
    return Reconstruction(rows, nodes, confidence, claimed=found.claimed)


def _by_level(rows: Tensor, weights: Tensor | None, samples: int, *, scaled: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [R, F], nodes [R] and certainty [R] of discrete rows by the weight in their entries.

    The sum of a row-normalised row's entries is A_kj / S, each entry of a 0/1 row is.

    Args:
        rows: as found [R, F].
        weights: A_kj of all nodes [N], or None.
        samples: S.
        scaled: whether rows are normalised.
    """
    top = rows.abs().amax(1, keepdim=True)
    bits = (rows.abs() > 0.5 * top) & (top > 0)
    size = bits.sum(1)
    level = (rows * bits).sum(1) / size.clamp(min=1)
    weight = (level * size if scaled else level) * samples
    clean = torch.where(bits, (1.0 / size.clamp(min=1))[:, None] if scaled else torch.ones(()), 0.0)
    nodes = torch.full((len(rows),), -1)
    if weights is None or len(rows) == 0:
        return clean, nodes, torch.zeros(len(rows), dtype=torch.bool)
    order = torch.argsort(weights)
    gap = ((weight[:, None] - weights[order]) / weights[order].clamp(min=1e-30)).abs()
    best, place = gap.min(1)
    close = (gap <= _SAME).sum(1)
    nodes = torch.where(best <= _SAME, order[place], -1)
    return clean, nodes, close == 1


def _by_length(
    view: View, own: ClientGraph, rows: Tensor, claimed: Tensor, weights: Tensor | None, samples: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows [R, F], nodes [R] and certainty [R] of real-valued rows by their lengths.

    Args:
        rows: as found [R, F].
        claimed: which of them are claimed [R].
        weights: A_kj of all nodes [N], or None.
        samples: S.
    """
    length = rows.norm(dim=1)
    nodes = torch.full((len(rows),), -1)
    certain = torch.zeros(len(rows), dtype=torch.bool)
    typical = typical_length(view, own)
    if weights is None or len(rows) == 0:
        return rows / length.max() * typical if len(rows) else rows, nodes, certain
    others = (weights > 0).nonzero().squeeze(1)
    slots = others.repeat_interleave(samples)
    share = weights[slots] / samples
    picked = torch.argsort(claimed.to(length) * length.max() * 2 + length, descending=True)[: len(slots)]
    cost = (length[picked, None].clamp(min=1e-30).log() - share.log() - typical.log()).square()
    row, slot = (torch.from_numpy(index).long() for index in linear_sum_assignment(cost.double().numpy()))
    nodes[picked[row]] = slots[slot]
    scale = torch.full_like(length, 1.0)
    scale[picked[row]] = 1 / share[slot]
    missing = nodes < 0
    scale[missing] = typical / length[missing].clamp(min=1e-30)
    certain[picked[row]] = torch.tensor(len(others) == 1).expand(len(row))
    return rows * scale[:, None], nodes, certain


def typical_length(view: View, own: ClientGraph) -> Tensor:
    """Return the median length of the rows the observer knows that are not all zeros, which show no length; 1 without
    any."""
    known = torch.cat([own.x.flatten(0, -2), view.auxiliary.x.flatten(0, -2).to(own.x)]).float().norm(dim=1)
    known = known[known > 0]
    return known.median() if len(known) else torch.ones(())
