"""Overlapping clients (FedGT, section 5.1): from each METIS part half of the nodes are drawn, five times."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.graph import Graph
from fglaudit.partition.metis import metis

DRAWS_PER_PART = 5  # clients 10, 30, 50 come from 2, 6, 10 parts


def overlapping(graph: Graph, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Return ascending node ids per client; clients of one part share nodes, and about 1 node in 32 is at no client.

    Raises:
        FglauditError: ``clients`` is no multiple of 5, or METIS fails.
    """
    if clients % DRAWS_PER_PART:
        raise FglauditError(
            f"overlapping draws {DRAWS_PER_PART} clients from every METIS part, so clients must be a multiple of"
            f" {DRAWS_PER_PART}; got {clients}; use 10, 30 or 50 as the paper does"
        )
    drawn = []
    for part in metis(graph, clients // DRAWS_PER_PART, rng):
        for _ in range(DRAWS_PER_PART):
            half = torch.randperm(len(part), generator=rng)[: max(len(part) // 2, 1)]
            drawn.append(part[half].sort().values)
    return drawn
