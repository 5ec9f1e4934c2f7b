"""Which global nodes of two clients belong together, and averages in a client's own order (FedGT, equations (7), (8)).

The server does this, and so does an observer that takes its averages apart.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError


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


def average_global_nodes(global_nodes: Tensor, matching: Tensor, weights: Tensor) -> Tensor:
    """Return every client's average [K, g, d] of all clients' global nodes, aligned with its own by ``matching``."""
    sender = torch.arange(len(global_nodes), device=global_nodes.device).view(1, -1, 1)
    return torch.einsum("ij,ijgd->igd", weights, global_nodes[sender, matching])
