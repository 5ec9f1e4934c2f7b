"""Consistency regularisation of several samples of one node (Gophormer; Feng et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

TEMPERATURE = 0.5


def disagreement(scores: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the squared distance [K, m] of S class distributions from their sharpened mean, averaged over the S.

    Args:
        scores: S samples of m nodes of K clients [K, S, m, C].
        temperature: below 1 sharpens the mean; no gradient passes through it.
    """
    chance = scores.softmax(3)
    target = torch.softmax(chance.mean(1, keepdim=True).log() / temperature, 3).detach()
    return (chance - target).square().sum(3).mean(1)
