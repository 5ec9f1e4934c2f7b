"""Distributions that explain measurements: least squares over the simplex, regularised towards a prior."""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 300
_RATE = 0.1


def fit_distributions(design: Tensor, measured: Tensor, variance: Tensor, prior: Tensor) -> Tensor:
    """Return the distributions y [K, C] that minimise ``|measured - y design|^2 / (2 variance) + KL(prior, y)``.

    Args:
        design: [K, C, d]: what one unit of each class adds to the measurements of each client.
        measured: [K, d].
        variance: of the measurements' error, a number, [K, 1] or [K, d].
        prior: [C].
    """
    design, measured, prior = design.double(), measured.double(), prior.double()
    scores = prior.clamp(min=1e-6).log().expand(len(design), -1).clone()
    first, second = torch.zeros_like(scores), torch.zeros_like(scores)
    # Adam on softmax scores; its gradient is written out: a view may be read without autograd.
    for step in range(1, _STEPS + 1):
        shares = scores.softmax(1)
        predicted = torch.einsum("kc,kcd->kd", shares, design)
        slope = torch.einsum("kcd,kd->kc", design, (predicted - measured) / variance) - prior / shares.clamp(min=1e-9)
        gradient = shares * (slope - (shares * slope).sum(1, keepdim=True))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient.square()
        scores = scores - _RATE * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-12)
    return scores.softmax(1)
