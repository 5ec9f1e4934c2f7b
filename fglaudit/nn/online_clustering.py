"""Online clustering of node representations (FedGT, Algorithm 1; after Zhan et al., CVPR 2020), K clients at once."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest(rows: Tensor, centroids: Tensor) -> Tensor:
    """Return the index [K, m] of the centroid [K, g, d] nearest to each row [K, m, d] in Euclidean distance."""
    products = torch.baddbmm(centroids.square().sum(2).unsqueeze(1), rows, centroids.transpose(1, 2), alpha=-2)
    return products.argmin(2)


def update_centroids(
    rows: Tensor, present: Tensor, centroids: Tensor, counts: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """Return centroids [K, g, d] and counts [K, g] after one batch.

    ``mu = (gamma c mu + (1 - gamma) P'H) / c_new`` with ``c_new = gamma c + (1 - gamma) P'1``; a centroid without any
    count does not move.

    Args:
        rows: H_b [K, m, d]; those where ``present`` [K, m] is false are left out.
        centroids: mu before the batch [K, g, d].
        counts: c before the batch [K, g].
        momentum: gamma.
    """
    assigned = torch.nn.functional.one_hot(nearest(rows, centroids), centroids.shape[1]).to(rows) * present.unsqueeze(2)
    updated = momentum * counts + (1 - momentum) * assigned.sum(1)
    sums = momentum * counts.unsqueeze(2) * centroids + (1 - momentum) * (assigned.transpose(1, 2) @ rows)
    empty = (updated <= 0).unsqueeze(2)
    return torch.where(empty, centroids, sums / updated.unsqueeze(2).clamp(min=torch.finfo(rows.dtype).tiny)), updated
