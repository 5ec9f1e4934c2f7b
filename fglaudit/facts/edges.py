"""Facts about edges and the groups in which neighbours are used."""

from __future__ import annotations

from dataclasses import dataclass

from fglaudit.errors import FglauditError
from fglaudit.facts.base import Fact


@dataclass(frozen=True)
class DroppedEdges(Fact):
    """Cross-client edges of nodes that have fewer than ``fewest`` cross-client neighbours are dropped."""

    fewest: int


@dataclass(frozen=True)
class DegreeBound(Fact):
    """Edges are dropped until no node has more than ``bound`` neighbours, by public priorities drawn from ``seed``."""

    bound: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound < 1:
            raise FglauditError(f"a degree bound must be at least 1; got {self.bound}; state the one in use")


@dataclass(frozen=True)
class Merged(Fact):
    """Means over groups replace cross-client neighbours: groups of ``size`` to ``2 size - 1``, consecutive by node id,
    of one neighbourhood each; a smaller neighbourhood is one group."""

    size: int
