"""Similarity of clients, and the weights of personalised averages (FedGT, equations (7) and (8))."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

LEAST_SHARE = 0.05
"""Of an upload's square that is taken not to be noise."""


def cosine_similarity(vectors: Tensor) -> Tensor:
    """Return the cosines [K, K] of vectors [K, D]."""
    unit = functional.normalize(vectors, dim=1)
    return unit @ unit.T


def without_noise(similarity: Tensor, uploads: Tensor, std: float) -> Tensor:
    """Return similarities [K, K] as they would be without noise of a known standard deviation on the ``uploads``
    [K, ...] that they are cosines of.

    Noise on one of two vectors leaves their product as it is on average and adds ``std^2`` per entry to its square: a
    cosine shrinks by the root of what share of the square is the vector's own. A client is compared with itself without
    noise. A client whose upload is hardly longer than noise alone counts with :data:`LEAST_SHARE`.
    """
    square = uploads.double().flatten(1).square().mean(1)
    own = (1 - std**2 / square.clamp(min=1e-300)).clamp(min=LEAST_SHARE).sqrt()
    restored = (similarity.double() / (own.unsqueeze(1) * own)).clamp(-1, 1)
    return restored.fill_diagonal_(1.0).to(similarity)


def personal_weights(similarity: Tensor, tau: float) -> Tensor:
    """Return the weights alpha [K, K] of client j in the average of client i: a softmax of ``tau S`` over j."""
    return torch.softmax(tau * similarity, 1)
