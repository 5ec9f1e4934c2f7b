"""Local-only GCN: every client trains alone on its own subgraph, the opposite extreme to the centralized GCN.

Nothing is sent. Edges to other clients are ignored and degrees are those of the client's own subgraph, as in FedGCN
with 0 hops, but models are never averaged. All clients start from the same weights. A client without training nodes
keeps the first model; its test nodes count all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.protocols.baselines.gcn import GCN


@dataclass(frozen=True)
class LocalGCN(GCN):
    """Local-only GCN; fields as in :class:`fglaudit.protocols.fedgcn.fedgcn.FedGCN`."""

    name: ClassVar[str] = "local-gcn"
    pooled: ClassVar[bool] = False

    local_steps: int = 3
