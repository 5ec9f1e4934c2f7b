"""The scores of rebuilt rows by degree, class and client, for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fglaudit.quantities.rows.game import Game

DEGREE_BUCKETS = (1, 2, 4, 8)
"""Upper ends of the degree buckets in reports; the last one is open."""


MOST_CLIENTS = 50
"""A breakdown by client with more than this is left out."""


def breakdown(games: Sequence[Game], values: Tensor) -> dict[str, dict[str, float]]:
    """Return the mean of ``values`` by degree bucket, class and, unless there are too many to read, owning client; and
    of the hundredth of the targets with the lowest and with the highest degrees (with all that have the same)."""
    degrees = torch.cat([g.degrees for g in games])
    bucket = torch.bucketize(degrees, torch.tensor(DEGREE_BUCKETS))
    low = (0, *(end + 1 for end in DEGREE_BUCKETS[:-1]))
    names = [str(b) if a >= b else f"{a}-{b}" for a, b in zip(low, DEGREE_BUCKETS, strict=True)]
    names.append(f"{DEGREE_BUCKETS[-1] + 1}+")
    labels = torch.cat([g.labels for g in games])
    owners = torch.cat([g.owners for g in games])
    means = {"degree": _means(bucket, values, lambda b: names[b]), "class": _means(labels, values, str)}
    low_end, high_end = torch.quantile(
        degrees.double(), torch.tensor([0.01, 0.99], dtype=torch.double), interpolation="nearest"
    )
    means["degree percentile"] = {
        "lowest 1 %": float(values[degrees <= low_end].double().mean().item()),
        "highest 1 %": float(values[degrees >= high_end].double().mean().item()),
    }
    if len(torch.unique(owners)) <= MOST_CLIENTS:
        means["client"] = _means(owners, values, str)
    return means


def _means(groups: Tensor, values: Tensor, name: Callable[[int], str]) -> dict[str, float]:
    keys, index = torch.unique(groups, return_inverse=True)
    count = torch.bincount(index).double()
    total = torch.zeros(len(keys), dtype=torch.double).index_add_(0, index, values.double())
    return {name(int(k)): float(v) for k, v in zip(keys.tolist(), (total / count).tolist(), strict=True)}
