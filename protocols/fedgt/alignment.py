"""Similarity of clients by their global nodes, and personalised averages (FedGT, equations (7) and (8))."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError

LEAST_SHARE = 0.05
"""Of an upload's square that is taken not to be noise."""


def align(global_nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Match the global nodes [K, g, d] of every pair of clients so that the mean cosine is largest.

    Returns:
        Similarities S [K, K] in [-1, 1], and matchings [K, K, g]: global node k of client i belongs to
            ``matching[i, j, k]`` of j.

    Raises:
        FglauditError: if they are not finite.
    """
    if not bool(torch.isfinite(global_nodes).all()):
        raise FglauditError("global nodes must stay finite; training has diverged; lower the learning rate")
    unit = functional.normalize(global_nodes, dim=2)
    cosines = torch.einsum("iad,jbd->ijab", unit, unit).cpu().double()
    clients, count = cosines.shape[0], cosines.shape[2]
    identity = torch.arange(count)
    matching = identity.expand(clients, clients, count).clone()
    costs = cosines.numpy()
    for i in range(clients):  # one assignment problem per pair; each is far below a millisecond
        for j in range(i + 1, clients):
            forward = torch.from_numpy(linear_sum_assignment(costs[i, j], maximize=True)[1])
            matching[i, j] = forward
            matching[j, i, forward] = identity
    similarity = cosines.gather(3, matching.unsqueeze(3)).squeeze(3).mean(2)
    return similarity.to(global_nodes), matching.to(global_nodes.device)


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


def average_global_nodes(global_nodes: Tensor, matching: Tensor, weights: Tensor) -> Tensor:
    """Return every client's average [K, g, d] of all clients' global nodes, aligned with its own by ``matching``."""
    sender = torch.arange(len(global_nodes), device=global_nodes.device).view(1, -1, 1)
    return torch.einsum("ij,ijgd->igd", weights, global_nodes[sender, matching])
