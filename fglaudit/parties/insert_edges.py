"""A client that claims edges which are not there, so that it receives single rows (after DMan4Rec, arXiv 2411.02866).

Some of its nodes have neighbours at other clients. It withdraws the edges of a few of its own nodes to other clients
and claims instead one edge each to a different neighbour of its other nodes, whose number it knows. What it receives
for such a node is the row of that neighbour alone, and what it holds itself. All parties compute with the claimed
edges: degrees change, and the neighbour's own sums get a row more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.errors import require_least
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.interfaces import FederatedProtocol, Trained
from fglaudit.parties.base import Behaviour, Conduct


@dataclass(frozen=True)
class InsertEdges(Behaviour):
    """A client claims edges by which it receives single rows.

    Attributes:
        client: who.
        edges: how many it claims at most, each from a node of its own to another neighbour.
    """

    name: ClassVar[str] = "insert-edges"
    shown: ClassVar[tuple[str, ...]] = ("client", "edges")

    client: int = 0
    edges: int = 50

    def __post_init__(self) -> None:
        require_least(self, client=0, edges=1)

    @property
    def least_clients(self) -> int:
        return self.client + 1

    def unsupported(self, protocol: FederatedProtocol, graph: FederatedGraph) -> str | None:
        if self.client >= graph.num_clients:
            return f"insert-edges names client {self.client}; the last one is client {graph.num_clients - 1}"
        if not len(graph.client(self.client).remote_nodes):
            return f"client {self.client} has no neighbour at another client, so none to claim an edge to"
        return None

    def claims(self, graph: FederatedGraph) -> FederatedGraph:
        client = graph.client(self.client)
        across = torch.bincount(client.boundary[0], minlength=len(client.nodes))
        # Nodes with the fewest neighbours elsewhere lose the least; each takes a neighbour that none of them had.
        order = across.argsort(stable=True)
        count = min(self.edges, len(client.remote_nodes), len(client.nodes))
        own = order[:count]
        targets = _known_by_others(client.boundary, own, len(client.remote_nodes))[:count]
        own = client.nodes[own[: len(targets)]]
        mine = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mine[client.nodes] = True
        used = torch.zeros_like(mine)
        used[own] = True
        row, column = graph.edge_index
        gone = (used[row] & ~mine[column]) | (used[column] & ~mine[row])
        claimed = torch.stack([own, client.remote_nodes[targets]])
        edges = torch.cat([graph.edge_index[:, ~gone], claimed, claimed.flip(0)], 1)
        return dataclasses.replace(graph, edge_index=canonical_edges(edges, graph.num_nodes))

    def bind(self, protocol: FederatedProtocol, graph: FederatedGraph, rng: torch.Generator) -> Conduct:
        return _Claiming(self.client)


@dataclass(frozen=True)
class _Claiming(Conduct):
    client: int

    def remarks(self, trained: Trained) -> tuple[str, ...]:
        return (
            f"insert-edges: client {self.client} claims edges that are not in the data; its victims see a neighbour"
            " more each, and no message tells them that it is false",
        )


def _known_by_others(boundary: torch.Tensor, own: torch.Tensor, count: int) -> torch.Tensor:
    """Return the remote neighbours [M], positions below ``count``, first those of own nodes other than ``own``: theirs
    stay known after ``own`` withdraw their edges."""
    kept = ~torch.isin(boundary[0], own)
    seen = torch.zeros(count, dtype=torch.bool)
    seen[boundary[1][kept]] = True
    return torch.cat([(~seen).nonzero().squeeze(1), seen.nonzero().squeeze(1)])
