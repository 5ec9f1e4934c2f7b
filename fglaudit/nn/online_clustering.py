"""Online clustering of node representations (FedGT, Algorithm 1; after Zhan et al., CVPR 2020), K clients at once."""

from __future__ import annotations

from dataclasses import dataclass

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


SMALLEST_VARIANCE = 1e-5
"""Added to variances."""


@dataclass(frozen=True)
class Clustering:
    """What K clients keep of their clustering from batch to batch.

    Attributes:
        counts: c [K, g].
        mean, variance: of the rows, each averaged over ``batches`` [K]; [K, d].
    """

    counts: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor

    @staticmethod
    def of(centroids: Tensor) -> Clustering:
        """Return the state before the first batch; ``centroids`` [K, g, d]."""
        clients, count, width = centroids.shape
        zeros = centroids.new_zeros(clients, width)
        return Clustering(centroids.new_ones(clients, count), zeros, zeros + 1, centroids.new_zeros(clients))

    def after(
        self, rows: Tensor, present: Tensor, centroids: Tensor, momentum: float, *, normalised: bool
    ) -> tuple[Tensor, Clustering]:
        """Return centroids [K, g, d] and the state after a batch; a client without any row in it keeps both.

        Args:
            rows, present, momentum: as in :func:`update_centroids`.
            normalised: cluster ``(H - mean) / std`` of the batch, in which space the old centroids have mean and
                variance of all batches before, and bring the new ones back with those of all batches so far.
        """
        if normalised:
            size = present.sum(1, keepdim=True)
            mean = (rows * present.unsqueeze(2)).sum(1) / size.clamp(min=1)
            variance = ((rows - mean.unsqueeze(1)).square() * present.unsqueeze(2)).sum(1) / size.clamp(min=1)
            inner = (rows - mean.unsqueeze(1)) / _deviation(variance).unsqueeze(1)
            before = (centroids - self.mean.unsqueeze(1)) / _deviation(self.variance).unsqueeze(1)
            moved, counts = update_centroids(inner, present, before, self.counts, momentum)
            batches, unbiased = self.batches + 1, variance * size / (size - 1).clamp(min=1)
            share = (1 / batches).unsqueeze(1)
            new = Clustering(counts, self.mean.lerp(mean, share), self.variance.lerp(unbiased, share), batches)
            moved = moved * _deviation(new.variance).unsqueeze(1) + new.mean.unsqueeze(1)
        else:
            moved, counts = update_centroids(rows, present, centroids, self.counts, momentum)
            new = Clustering(counts, self.mean, self.variance, self.batches)
        active = present.any(1)
        return torch.where(active.view(-1, 1, 1), moved, centroids), Clustering(
            *(
                torch.where(active.view(-1, *[1] * (value.dim() - 1)), value, old)
                for value, old in (
                    (new.counts, self.counts),
                    (new.mean, self.mean),
                    (new.variance, self.variance),
                    (new.batches, self.batches),
                )
            )
        )


def _deviation(variance: Tensor) -> Tensor:
    return (variance + SMALLEST_VARIANCE).sqrt()
