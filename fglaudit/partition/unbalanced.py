"""Clients of unequal size as in FedGT's appendix: METIS parts, each keeping a random 10 to 100 % of its nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.graph import Graph
from fglaudit.partition.metis import metis

LEAST_SHARE = 0.1


def unbalanced(graph: Graph, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Return ascending node ids per client; the nodes that were not kept are at no client."""
    parts = metis(graph, clients, rng)
    shares = LEAST_SHARE + (1 - LEAST_SHARE) * torch.rand(clients, generator=rng)
    kept = []
    for part, share in zip(parts, shares.tolist(), strict=True):
        count = max(round(share * len(part)), 1)
        kept.append(part[torch.randperm(len(part), generator=rng)[:count]].sort().values)
    return kept
