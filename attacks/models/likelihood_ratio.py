"""Scores of membership from a model's outputs on a node, given shadow models of which some were trained on it.

Carlini et al., "Membership Inference Attacks From First Principles" (S&P 2022), sections IV-VI: online LiRA compares
the target's logit-scaled confidence with Gaussians fitted to that of shadow models with and without the example,
offline LiRA with those without it alone; the variance is pooled over examples where there are fewer than 64 shadow
models. Zarifzadeh, Liu and Shokri, "Low-Cost High-Power Membership Inference Attacks" (ICML 2024), section 3: RMIA
compares the ratio of the example's likelihood under the target and under few reference models with the same ratio of
population examples, which nobody trained on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

POOLED_BELOW = 64
"""With fewer shadow models one variance is fitted for all examples."""
_LEAST_SPREAD = 1e-3
"""Least standard deviation of a logit-scaled confidence; far below what retraining moves it."""


def scaled_confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``log(p / (1 - p))`` of the probability p of every node's label, from logits [..., n, C] and labels [n].

    It is computed as the label's logit minus the log-sum-exp of the others, which does not overflow.
    """
    index = labels.view(*[1] * (logits.dim() - 2), -1, 1).expand(*logits.shape[:-1], 1)
    own = logits.double().gather(-1, index).squeeze(-1)
    others = logits.double().scatter(-1, index, -torch.inf).logsumexp(-1)
    return own - others


def log_chance(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log probability [..., n] of every node's label, from logits [..., n, C] and labels [n]; where a label
    is -1, that of the first class."""
    index = labels.clamp(min=0).view(*[1] * (logits.dim() - 2), -1, 1).expand(*logits.shape[:-1], 1)
    return logits.double().log_softmax(-1).gather(-1, index).squeeze(-1)


def online_score(target: Tensor, shadows: Tensor, members: Tensor) -> Tensor:
    """Return the log likelihood ratio of "was a member" [n].

    Args:
        target: confidence of the attacked model [n].
        shadows: confidences of the shadow models [M, n].
        members: which of them were trained on which node [M, n]; at least one of each kind for every node.
    """
    with_it, spread_with = _fit(shadows, members)
    without, spread_without = _fit(shadows, ~members)
    return _log_density(target, with_it, spread_with) - _log_density(target, without, spread_without)


def offline_score(target: Tensor, shadows: Tensor, members: Tensor) -> Tensor:
    """Return by how many standard deviations the confidence exceeds that of models without the node [n].

    It orders nodes as the one-sided probability does, without running out of digits. Arguments: :func:`online_score`.
    """
    mean, spread = _fit(shadows, ~members)
    return (target - mean) / spread


def relative_score(target: Tensor, references: Tensor, population: Tensor, population_references: Tensor) -> Tensor:
    """Return the share of the population that each node beats in likelihood ratio [n] (RMIA with gamma 1).

    Args:
        target: log probability of every node's label under the attacked model [n].
        references: the same under reference models [R, n].
        population, population_references: the same for the population, [m] and [R, m].
    """
    usual = references.double().logsumexp(0) - math.log(len(references))
    usual_population = population_references.double().logsumexp(0) - math.log(len(references))
    beaten = (population.double() - usual_population).sort().values
    ratio = target.double() - usual
    below = torch.searchsorted(beaten, ratio.contiguous(), side="left").double()
    upto = torch.searchsorted(beaten, ratio.contiguous(), side="right").double()
    return (below + upto) / (2 * len(beaten))


def _fit(values: Tensor, use: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation [n] of the ``values`` [M, n] in ``use`` [M, n]."""
    count = use.sum(0).clamp(min=1)
    mean = (values * use).sum(0) / count
    square = ((values - mean) * use).square().sum(0)
    if len(values) < POOLED_BELOW:
        freedom = (count - 1).sum().clamp(min=1)
        variance = (square.sum() / freedom).expand_as(mean)
    else:
        variance = square / (count - 1).clamp(min=1)
    return mean, variance.sqrt().clamp(min=_LEAST_SPREAD)


def _log_density(value: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -((value - mean) / spread).square() / 2 - spread.log()
