"""Merge cross-client neighbours into groups before FedGAT's server masks them (Algorithm 1): means replace rows.

A client then reads means over groups out of its matrices. A node with fewer than ``size`` cross-client neighbours gets
none. Groups are consecutive in order of node id, which is public, and have ``size`` to ``2 size - 1`` members; own
neighbours are never merged with others, since a client could subtract them.

Attention weighs all members of a group alike. Means over overlapping groups are equations in the rows, as FedGCN's sums
are: a neighbour that is in many groups can be solved for. The server must be trusted with the rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.graph.minimum_neighborhood import FewestSession
from fglaudit.errors import FglauditError
from fglaudit.facts import EDGES, Fact, Merged
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import MaskedMatrices, MaskedVectors, Payload
from fglaudit.privacy.strength import weaker_count

MASKED: tuple[type[Payload], ...] = (MaskedMatrices, MaskedVectors)


class _Session(FewestSession):
    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Number the groups of every neighbourhood; ``center`` is ascending."""
        _, place, count = torch.unique_consecutive(center, return_inverse=True, return_counts=True)
        order = torch.argsort(neighbor, stable=True)
        order = order[torch.argsort(place[order], stable=True)]
        start = count.cumsum(0) - count
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device) - start[place[order]]
        groups = torch.div(count, self.fewest, rounding_mode="floor").clamp(min=1)
        within = torch.minimum(torch.div(rank, self.fewest, rounding_mode="floor"), groups[place] - 1)
        return (groups.cumsum(0) - groups)[place] + within

    def changes(self, payload: type[Payload]) -> bool:
        return payload in MASKED

    def facts(self) -> tuple[Fact, ...]:
        return (*super().facts(), Merged(EDGES, self.fewest))


@dataclass(frozen=True)
class MergeNeighbors(Defense):
    """Clients get means over at least ``size`` cross-client neighbours instead of their rows. No epsilon is promised.

    Attributes:
        size: members of a group, at least 2.
    """

    name: ClassVar[str] = "merge-neighbors"
    shown: ClassVar[tuple[str, ...]] = ("size",)

    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 2:
            raise FglauditError(
                f"a group that hides a row has size >= 2; got {self.size}; use the defense `none` to merge nothing"
            )

    def unsupported(self, context: Context) -> str | None:
        if not any(release.payload in MASKED for release in context.releases):
            return f"{context.protocol} sends no masked neighbourhoods, so there is nothing to merge before masking"
        return None

    def weakened(self, factor: float) -> MergeNeighbors:
        """Return it with smaller groups, of two at least: rows alone would be no groups."""
        return dataclasses.replace(self, size=weaker_count(self.size, 2, factor))

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self.size)
