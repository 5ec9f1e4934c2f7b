"""What a canary is: a feature row of one's own in the place of one node's row, either there, or what the guarantee's
neighbouring relation has instead: zeros, or where a row may be replaced by any other the opposite row, which is
furthest from it after clipping.

The unit is "node", edges and labels are public. The row is a thousand times longer than any of the data: a defense that
clips brings it to its clip norm, where the guarantee is tight, and one that forgets to clip is found out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.context import REPORTING_NODE
from fglaudit.graph import FederatedGraph

FEATURES = 64
"""Canaries with entries in single features have them among the first so many, so no others need be replayed."""
LENGTH = 1000.0
"""Norm of a canary in norms of the longest row (at least 1)."""


@dataclass(frozen=True)
class Canary:
    """A row [F] for one node."""

    node: int
    row: Tensor

    def insert(self, graph: FederatedGraph, sign: int) -> FederatedGraph:
        """Return ``graph`` with ``sign`` (1, 0 or -1) times the canary as the node's features."""
        x = graph.x.clone()
        x[self.node] = sign * self.row.to(x)
        return dataclasses.replace(graph, x=x)


def covered_nodes(graph: FederatedGraph, unit: str = "node") -> Tensor:
    """Return the nodes [n] that a guarantee of this unit names: all that somebody holds, or those that only report."""
    held = torch.cat(graph.clients)
    if unit == REPORTING_NODE:
        used = torch.cat([train | val for train, val in zip(graph.train, graph.val, strict=True)])
        used = used.reshape(len(held), -1).any(1)
        held = held[~torch.isin(held, held[used])]
    named: Tensor = torch.unique(held)
    return named


def canary_nodes(graph: FederatedGraph, unit: str = "node") -> list[int]:
    """Return nodes whose rows may move the messages most: with fewest links, with most, and with the largest column
    norm of the symmetrically normalised adjacency."""
    owned = covered_nodes(graph, unit)
    if not len(owned):
        return []
    degrees = graph.degrees()
    receiver, source = graph.edge_index
    inverse = 1 / (degrees.double() + 1)
    column = inverse * (inverse + torch.zeros_like(inverse).index_add_(0, source, inverse[receiver]))
    best = (degrees[owned].argmin(), degrees[owned].argmax(), column[owned].argmax())
    return sorted({int(owned[index].item()) for index in best})
