"""Rows that repeat: which of the rows that sums leave open are copies of known ones.

A row that no known one equals has probability ``singles / rows`` by Good and Turing's estimate, where singles are the
known rows that stand once; a row v that stands several times has ``count(v) / rows``. The linear estimate m of a row
with prior mean p and variance s weighs these: sums that tell the share a of it, with ``E |m - p|^2 = a s``, have ``m -
p`` normal with variance ``a s`` if the row is a new one, and with mean ``a (v - p)`` and variance ``a (1 - a) s`` if it
is v. What is far from every v by these, as messages of noise are, says nothing. Where most known rows are copies, no
row is called new. A discrete row that is new is what the estimate is rounded to, with variance ``a (1 - a) s`` around
it too, times the prior probability of its entries. The estimate itself, an average over rows, is never a copy of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.priors.feature_prior import FeaturePrior

_MOST_TOLD = 0.95
"""Share of an open row that sums tell at most: of a long row it is overestimated."""

_FIT = 4.0
"""Squared deviations per feature up to which an estimate fits a row."""


def with_copies(estimate: Tensor, known: Tensor, prior: FeaturePrior) -> Tensor:
    """Return the linear ``estimate`` [U, F], with copies of ``known`` rows [K, F] where these are likelier.

    Args:
        prior: of the U rows.
    """
    copied, rows = likelier_copies(estimate, known, prior)
    return torch.where(copied[:, None], rows, estimate)


@dataclass(frozen=True)
class New:
    """What discrete rows are if they are new ones.

    Attributes:
        rows: what the estimates are rounded to [U, F].
        chance: log of the prior probability of these among new rows [U].
    """

    rows: Tensor
    chance: Tensor


def likelier_copies(
    estimate: Tensor, known: Tensor, prior: FeaturePrior, new: New | None = None
) -> tuple[Tensor, Tensor]:
    """Return which rows with the linear ``estimate`` [U, F] likelier are copies of ``known`` rows [K, F] than new ones
    [U], and of which [U, F].

    Args:
        prior: of the U rows, in the known rows' unit.
        new: what discrete rows would else be; real-valued ones are any.
    """
    kinds, kind, counts = torch.unique(known.to(estimate), dim=0, return_inverse=True, return_counts=True)
    several = (counts > 1).nonzero().squeeze(1)
    if len(several) == 0:
        return torch.zeros(len(estimate), dtype=torch.bool, device=estimate.device), estimate
    # Of equally likely ones the first that is known, as the guess has it that reads no message.
    place = torch.full_like(counts, len(known)).scatter_reduce(0, kind, torch.arange(len(known)).to(kind), "amin")
    several = several[place[several].argsort()]
    candidates, mean = kinds[several], prior.mean.to(estimate)
    spread = prior.variance.to(estimate).mean(1, keepdim=True).clamp(min=1e-300)
    moved = estimate - mean
    told = (moved.square().mean(1, keepdim=True) / spread).clamp(1e-12, _MOST_TOLD)
    toward = moved @ candidates.mT - (moved * mean).sum(1, keepdim=True)
    # Not by products, which cancel where rows are large; nor by differences of all pairs, which fill the memory.
    away = torch.cdist(mean, candidates, compute_mode="donot_use_mm_for_euclid_dist").square()
    error = (moved.square().sum(1, keepdim=True) / told - 2 * toward + told * away) / ((1 - told) * spread)
    features = estimate.shape[1]
    explained = (error <= _FIT * features).any(1, keepdim=True)
    singles = (counts == 1).sum()
    if new is None:
        copied = counts[several].log() - 0.5 * explained * (error + features * torch.log1p(-told))
        other = singles.log() - 0.5 * (moved.square().sum(1) / (told * spread).squeeze(1)) * explained.squeeze(1)
        never = bool(2 * singles <= len(known))
    else:
        off = (moved - told * (new.rows - mean)).square().sum(1, keepdim=True) / (told * (1 - told) * spread)
        explained |= off <= _FIT * features
        copied = counts[several].log() - 0.5 * explained * error
        other = singles.clamp(min=0.5).log() + new.chance - 0.5 * (explained * off).squeeze(1)
        never = False
    best, which = copied.max(1)
    copies = torch.ones_like(best, dtype=torch.bool) if never else best > other
    return copies, candidates[which]
