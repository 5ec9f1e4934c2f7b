"""Drop the cross-client neighbours of nodes that have few of them; fewest = 2 is the rule of FedGCN and FedGAT.

FedGAT's privacy analysis and FedGCN's footnote drop a node's only cross-client neighbour, because an aggregate over one
row is that row. This requires a larger neighbourhood. It does not help against attacks that solve aggregates for single
rows: FedGAT's matrices give every row of a neighbourhood of any size, sums over larger neighbourhoods remain equations
in the rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Context
from fglaudit.errors import FglauditError
from fglaudit.facts import EDGES, DroppedEdges, Fact
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.privacy.strength import weaker_count


def without_few(client: ClientGraph, fewest: int) -> ClientGraph:
    """Return ``client`` without the boundary edges of own nodes that have fewer than ``fewest`` remote neighbours."""
    count = torch.bincount(client.boundary[0], minlength=len(client.nodes))
    return client.keeping_cross(count[client.boundary[0]] >= fewest)


class FewestSession(DefenseSession):
    """Drops small remote neighbourhoods before training; ``fewest`` is public."""

    def __init__(self, fewest: int) -> None:
        self.fewest = fewest

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Return the client without small remote neighbourhoods."""
        return without_few(client, self.fewest)

    def facts(self) -> tuple[Fact, ...]:
        return (DroppedEdges(EDGES, self.fewest),)


def nothing_to_drop(context: Context) -> str | None:
    """Return why a protocol has no neighbourhoods that could be too small, or why dropping them changes nothing; or
    None."""
    if not context.releases:
        return f"{context.protocol} sends no neighbour features with these settings, so there is nothing to drop"
    if not context.cross_edges:
        return (
            f"edges between clients, as a defense leaves them, enter nothing that {context.protocol} sends or trains on"
            " with these settings, so dropping them would change nothing"
        )
    return None


@dataclass(frozen=True)
class MinimumNeighborhood(Defense):
    """A node with fewer than ``fewest`` cross-client neighbours receives nothing from them. No epsilon is promised.

    Attributes:
        fewest: at least 2; 2 is ``drop-singletons``.
    """

    name: ClassVar[str] = "minimum-neighborhood"
    shown: ClassVar[tuple[str, ...]] = ("fewest",)

    fewest: int = 4

    def __post_init__(self) -> None:
        if self.fewest < 2:
            raise FglauditError(
                f"fewest must be at least 2, since every neighbourhood has one member; got {self.fewest}; use the"
                " defense `none` to drop nothing"
            )

    def unsupported(self, context: Context) -> str | None:
        return nothing_to_drop(context)

    def weakened(self, factor: float) -> MinimumNeighborhood:
        """Return it with a smaller ``fewest``, 2 at least: 1 would drop nothing."""
        return dataclasses.replace(self, fewest=weaker_count(self.fewest, 2, factor))

    def bind(self, context: Context) -> DefenseSession:
        return FewestSession(self.fewest)
