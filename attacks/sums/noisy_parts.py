"""Posterior of the entries of sums under noise, where neither a term's level nor how many entries are set is known.

A part that the server sees holds one row at a level c that depends on degrees it does not know, and a few others at
levels of their own. Entry by entry it is ``c b + noise`` with a bit b, so given c the log odds of b are
``logit(p) + (v c - c^2 / 2) / std^2``. The level is one of a grid, weighed by each part's evidence for it. Where the
observer knows no rows, p is one density for all entries: that of a grid for which the parts speak most. Under noise
that hides everything nothing is moved, and the likeliest answer is the guess that was there before any message.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

LEVELS = tuple(2.0 ** (-k / 2) for k in range(21))
"""Of a term, from a whole entry to that of a scaled row at a node of a high degree."""
_DENSITIES = tuple(2.0**-k for k in range(1, 11))
_SEEN = 0.25
"""A level below this share of the noise's standard deviation is told from none by no entry."""
_ROWS_WEIGHED = 256
_CELLS_AT_ONCE = 1 << 22


def noisy_entries(parts: Tensor, std: Tensor, prior: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the probability of every entry of ``parts`` [R, F] to be set, and each part's evidence [R] for holding
    anything: the log likelihood ratio of its best level and no term at all.

    Args:
        std: standard deviation of the noise [R], positive.
        prior: probabilities of entries [R, F] or [1, F]; None where no row is known.
    """
    if len(parts) == 0:
        return parts, std
    levels = parts.new_tensor([level for level in LEVELS if level >= _SEEN * float(std.amin())] or LEVELS[:1])
    if prior is None:
        prior = parts.new_full((1, 1), _density(parts[:_ROWS_WEIGHED], std[:_ROWS_WEIGHED], levels))
    size = max(1, _CELLS_AT_ONCE // parts.shape[1])
    blocks = [slice(low, low + size) for low in range(0, len(parts), size)]
    found = [_weighed(parts[b], std[b], (prior if len(prior) == 1 else prior[b]).to(parts), levels) for b in blocks]
    return torch.cat([chance for chance, _ in found]), torch.cat([evidence for _, evidence in found])


def _weighed(parts: Tensor, std: Tensor, prior: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    evidence = torch.stack([_evidence(parts, std, prior, level) for level in levels], 1)
    weight = torch.softmax(evidence, 1)
    chance = torch.zeros_like(parts)
    for k, level in enumerate(levels):
        chance.addcmul_(_odds(parts, std, prior, level).sigmoid_(), weight[:, k : k + 1])
    return chance, evidence.amax(1)


def _odds(parts: Tensor, std: Tensor, prior: Tensor, level: Tensor) -> Tensor:
    """Return the log odds of entries [R, F] to be set, given their level."""
    return (parts * level - level.square() / 2).div_(std.square()[:, None]).add_(prior.logit())


def _evidence(parts: Tensor, std: Tensor, prior: Tensor, level: Tensor) -> Tensor:
    """Return the log likelihood of parts [R] at a level, less that of no term."""
    return (functional.softplus(_odds(parts, std, prior, level)) - functional.softplus(prior.logit())).sum(1)


def _density(parts: Tensor, std: Tensor, levels: Tensor) -> float:
    """Return the share of set entries for which parts [R, F] speak most, each at its best level."""
    told = [
        torch.stack([_evidence(parts, std, parts.new_full((1, 1), p), level) for level in levels], 1).amax(1).sum()
        for p in _DENSITIES
    ]
    return _DENSITIES[int(torch.stack(told).argmax())]
