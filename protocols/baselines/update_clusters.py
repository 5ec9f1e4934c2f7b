"""How GCFL+ parts clients into clusters (Xie et al. 2021, arXiv:2106.13423, section 4.2).

A cluster is parted in two when its mean update is small while one client's is still large: the clients then pull in
different directions. They are parted along the minimum cut of a graph whose weights fall with the distance, by dynamic
time warping, of the clients' last update norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import torch
from torch import Tensor

from fglaudit.errors import require_least

WARM_UP = 20
"""Rounds before anything is parted, in the authors' code."""


@dataclass(frozen=True)
class Parting:
    """When a cluster is parted.

    Attributes:
        largest_mean: bound below which the norm of the mean update must lie, epsilon_1.
        smallest_norm: bound above which one update's norm must lie, epsilon_2.
        sequence: how many of the last norms are compared.
    """

    largest_mean: float
    smallest_norm: float
    sequence: int

    def __post_init__(self) -> None:
        require_least(self, largest_mean=0, smallest_norm=0, sequence=1)

    def due(self, updates: Tensor) -> bool:
        """Whether the cluster whose clients sent ``updates`` [P, D] is parted."""
        norms = torch.linalg.vector_norm(updates, dim=1)
        mean = torch.linalg.vector_norm(updates.mean(0))
        return len(updates) > 2 and bool((mean < self.largest_mean) & (norms.max() > self.smallest_norm))


@dataclass
class Clusters:
    """The clusters of P senders, and the norms that they sent since the last parting.

    Attributes:
        members: indices of each cluster's senders, ascending.
        norms: one tensor [P] per round.
    """

    parting: Parting
    members: list[list[int]]
    norms: list[Tensor]

    @staticmethod
    def of(parting: Parting, senders: int) -> Clusters:
        """Return one cluster of all."""
        return Clusters(parting, [list(range(senders))], [])

    def observe(self, round: int, updates: Tensor) -> bool:
        """Take in a round's ``updates`` [P, D]; return whether a cluster was parted."""
        self.norms.append(torch.linalg.vector_norm(updates, dim=1).double().cpu())
        before = len(self.members)
        parted: list[list[int]] = []
        for members in self.members:
            known = round > WARM_UP and len(self.norms) >= self.parting.sequence
            if known and self.parting.due(updates[members]):
                last = torch.stack(self.norms[-self.parting.sequence :], 1)[members]
                parted += [[members[index] for index in half] for half in minimum_cut(warped_distances(last))]
                self.norms = []
            else:
                parted.append(members)
        self.members = parted
        return len(parted) > before

    def weights(self, sizes: Tensor) -> Tensor:
        """Return with which weights [P, P] each sender's cluster is averaged; ``sizes`` [P] are training nodes."""
        together = torch.zeros(len(sizes), len(sizes), dtype=torch.bool)
        for members in self.members:
            index = torch.tensor(members)
            together[index.unsqueeze(1), index] = True
        shares = together * sizes.cpu()
        return shares / shares.sum(1, keepdim=True)


def warped_distances(sequences: Tensor) -> Tensor:
    """Return the distances [P, P] of ``sequences`` [P, L] by dynamic time warping: the square root of the least sum of
    squared differences along a monotone path."""
    cost = (sequences[:, None, :, None] - sequences[None, :, None, :]).square()
    length = sequences.shape[1]
    best = torch.full((*cost.shape[:2], length + 1, length + 1), torch.inf, dtype=cost.dtype)
    best[..., 0, 0] = 0
    for i in range(1, length + 1):
        for j in range(1, length + 1):
            before = torch.stack([best[..., i - 1, j], best[..., i, j - 1], best[..., i - 1, j - 1]]).amin(0)
            best[..., i, j] = cost[..., i - 1, j - 1] + before
    return best[..., -1, -1].sqrt()


def minimum_cut(distances: Tensor) -> tuple[Sequence[int], Sequence[int]]:
    """Return the two sides of the minimum cut of ``largest distance - distances`` (Stoer and Wagner 1997)."""
    likeness = (distances.max() - distances).tolist()
    graph: nx.Graph[int] = nx.Graph()
    pairs = ((i, j) for i in range(len(likeness)) for j in range(i))
    graph.add_weighted_edges_from((i, j, likeness[i][j]) for i, j in pairs)
    _, (one, other) = nx.stoer_wagner(graph)
    return sorted(one), sorted(other)
