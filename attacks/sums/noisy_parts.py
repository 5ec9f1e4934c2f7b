"""Posterior of the entries of sums under noise, where neither a term's level nor how many entries are set is known.

A part that the server sees holds one row at a level c that depends on degrees it does not know, and a few others at
levels of their own. Entry by entry it is ``c b + noise`` with a bit b, so given c the log odds of b are
``logit(p) + (v c - c^2 / 2) / std^2``. The level is one of a grid, weighed by each part's evidence for it; levels that
noise hides leave p as it is. Where the observer knows no rows, p is one density for all entries, and the answer is the
mean over a grid of densities by how far all parts speak for each: the single one for which they speak most is far too
low under strong noise, and a few entries chosen by noise are worse than the guess that was there before any message.
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
_UNLIKELY = 1e-3
_STEPS = 20
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
    levels = parts.new_tensor([level for level in LEVELS if level >= _SEEN * float(std.amin())])
    some, its_std = parts[:_ROWS_WEIGHED], std[:_ROWS_WEIGHED]
    if prior is not None:
        prior = prior.to(parts)
        weights, _ = _level_weights(_evidences(some, its_std, prior[: len(some)], levels))
        return _in_blocks(parts, std, prior, levels, weights)
    chance, evidence = torch.zeros_like(parts), torch.zeros_like(std)
    for density, weight, weights in _densities(some, its_std, levels):
        one, told = _in_blocks(parts, std, parts.new_full((1, 1), density), levels, weights)
        chance.add_(one, alpha=weight)
        evidence.add_(told, alpha=weight)
    return chance, evidence


def _in_blocks(parts: Tensor, std: Tensor, prior: Tensor, levels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    size = max(1, _CELLS_AT_ONCE // parts.shape[1])
    blocks = [slice(low, low + size) for low in range(0, len(parts), size)]
    found = [_weighed(parts[b], std[b], prior if len(prior) == 1 else prior[b], levels, weights) for b in blocks]
    return torch.cat([chance for chance, _ in found]), torch.cat([evidence for _, evidence in found])


def _weighed(parts: Tensor, std: Tensor, prior: Tensor, levels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    evidence = _evidences(parts, std, prior, levels)
    weight = torch.softmax(evidence + weights.log(), 1)
    chance = prior * weight[:, len(levels) :].sum(1, keepdim=True)
    chance = chance.expand_as(parts).clone()
    for k, level in enumerate(levels):
        chance.addcmul_(_odds(parts, std, prior, level).sigmoid_(), weight[:, k : k + 1])
    return chance, evidence.amax(1)


def _evidences(parts: Tensor, std: Tensor, prior: Tensor, levels: Tensor) -> Tensor:
    """Return the log likelihood of parts [R] at every one of ``LEVELS``, less that of no term: at those that are not
    among ``levels`` nothing is seen."""
    seen = [_evidence(parts, std, prior, level) for level in levels]
    return torch.stack([*seen, *[torch.zeros_like(std)] * (len(LEVELS) - len(seen))], 1)


def _odds(parts: Tensor, std: Tensor, prior: Tensor, level: Tensor) -> Tensor:
    """Return the log odds of entries [R, F] to be set, given their level."""
    return (parts * level - level.square() / 2).div_(std.square()[:, None]).add_(prior.logit())


def _evidence(parts: Tensor, std: Tensor, prior: Tensor, level: Tensor) -> Tensor:
    """Return the log likelihood of parts [R] at a level, less that of no term."""
    return (functional.softplus(_odds(parts, std, prior, level)) - functional.softplus(prior.logit())).sum(1)


def _level_weights(evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Return how frequent each level is among parts, by what they speak for [R, L], and the log likelihood of all
    parts then; by expectation maximisation."""
    rows, count = evidence.shape
    weights = torch.full_like(evidence[0], 1 / count)
    for _ in range(_STEPS):
        weights = (torch.softmax(evidence + weights.log(), 1).sum(0) + 1 / count) / (rows + 1)
    return weights, (evidence + weights.log()).logsumexp(1).double().sum()


def _densities(parts: Tensor, std: Tensor, levels: Tensor) -> list[tuple[float, float, Tensor]]:
    """Return shares of set entries, how likely each is after a look at parts [R, F], and the weights of levels then."""
    told = [_level_weights(_evidences(parts, std, parts.new_full((1, 1), p), levels)) for p in _DENSITIES]
    likely = torch.stack([likelihood for _, likelihood in told]).softmax(0).tolist()
    found = zip(_DENSITIES, likely, (weights for weights, _ in told), strict=True)
    kept = [(density, weight, weights) for density, weight, weights in found if weight > _UNLIKELY]
    total = sum(weight for _, weight, _ in kept)
    return [(density, weight / total, weights) for density, weight, weights in kept]
