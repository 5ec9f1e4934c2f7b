"""Candidates by distance: random ones of the nodes within one or two hops, all with the same score."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def near_nodes(
    edge_index: Tensor, num_nodes: int, width: int, rng: torch.Generator, *, two_hops: bool
) -> tuple[Tensor, Tensor]:
    """Return at most ``width`` random nodes near each node, and scores 1 (0 pads) [n, width]; ``edge_index`` [2, E]."""
    row, column = edge_index.numpy()
    adjacency = sp.csr_array((np.ones(len(row)), (row, column)), shape=(num_nodes, num_nodes))
    pairs = sp.coo_array(adjacency + adjacency @ adjacency if two_hops else adjacency)
    reached = torch.from_numpy(np.stack([pairs.row, pairs.col])).long()
    reached = reached[:, torch.randperm(reached.shape[1], generator=rng)]
    reached = reached[:, torch.argsort(reached[0], stable=True)]
    start = torch.zeros(num_nodes + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(reached[0], minlength=num_nodes), 0, out=start[1:])
    rank = torch.arange(reached.shape[1]) - start[reached[0]]
    kept = rank < width
    nodes, scores = torch.zeros(num_nodes, width, dtype=torch.long), torch.zeros(num_nodes, width)
    nodes[reached[0, kept], rank[kept]] = reached[1, kept]
    scores[reached[0, kept], rank[kept]] = 1.0
    return nodes, scores
