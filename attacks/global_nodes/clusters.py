"""Which of FedGT's clusters got nodes in a round, and the weight of these nodes in the centroid (Algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.uploads import Codebooks
from fglaudit.structure import Centroids
from fglaudit.view import View

_STAYED = 1e-5
"""A global node that moved by less than this, relative to its length, got no nodes."""


def moved_clusters(books: Codebooks, std: float) -> Tensor:
    """Return which global nodes got nodes [T, K, g]; all of them where noise of ``std`` hides it."""
    change = (books.uploaded - books.received).norm(dim=3)
    return change > _STAYED * books.received.norm(dim=3) if std == 0 else torch.ones_like(change, dtype=torch.bool)


def cluster_weight(view: View, round: int, live: float, clients: int) -> float:
    """Return w, the weight of a round's nodes in a global node.

    Each of ``live`` clusters is assumed to get an equal share of an average client's nodes in every round.
    """
    momentum = view.public.structure.of(Centroids).momentum
    size = view.public.num_nodes / clients / live
    count, weight = 1.0, 0.0
    for _ in range(round):
        weight = (1 - momentum) * size / (momentum * count + (1 - momentum) * size)
        count = momentum * count + (1 - momentum) * size
    return weight
