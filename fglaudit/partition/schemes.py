"""The partition schemes, with a line each."""

from __future__ import annotations

from typing import Literal

Scheme = Literal["dirichlet", "metis", "louvain", "overlapping", "unbalanced", "given", "per-node"]
DESCRIPTIONS: dict[str, str] = {
    "dirichlet": "label skew: every class is cut over the clients by Dirichlet(beta)",
    "metis": "equal parts with few edges between them",
    "louvain": "communities, packed into clients of similar size",
    "overlapping": "METIS parts, from each half of the nodes drawn five times; clients share nodes",
    "unbalanced": "METIS parts, each keeps a random 10-100 % of its nodes; the others vanish",
    "given": "the clients that the graph itself names, in its array clients; as many as clients says",
    "per-node": "every node is a client of its own; clients is not used",
}


def partition_schemes() -> dict[str, str]:
    """Return a one-line description per scheme."""
    return dict(DESCRIPTIONS)
