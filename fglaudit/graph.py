"""Graphs as the rest of the package sees them: whole, federated, and as one client holds them.

``edge_index`` is always undirected (both directions present), without self-loops or duplicates and sorted by (row,
column); :func:`canonical_edges` makes it so. Protocols add self-loops themselves, as their papers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fglaudit.errors import FglauditError
from fglaudit.shapes import BoundaryEdges, Degrees, EdgeIndex, NodeIds, NodeLabels, NodeMask, RemoteIds


class FeatureKind(StrEnum):
    """What is publicly known about the levels of a feature; exactness is judged by it."""

    BINARY = "binary"  # every entry is 0 or 1
    SCALED_BINARY = (
        "scaled-binary"  # within a row all non-zero entries are equal and positive, e.g. row-normalised binary features
    )
    REAL = "real"

    @classmethod
    def of(cls, x: Tensor) -> FeatureKind:
        """Classify ``x`` [..., F]."""
        if bool(((x == 0) | (x == 1)).all()):
            return cls.BINARY
        top = x.amax(-1, keepdim=True)
        if bool((x < 0).any()) or not bool(((x == 0) | ((x - top).abs() <= 1e-6 * top.abs())).all()):
            return cls.REAL
        several = (x != 0).sum(-1) > 1
        if bool(several.any()):
            return cls.SCALED_BINARY
        # A row of one entry is equal within itself whatever it holds: such rows must be equal among one another.
        levels = x[x != 0]
        alike = bool(((levels - levels[0]).abs() <= 1e-6 * levels[0].abs()).all()) and bool(levels[0] > 0)
        return cls.SCALED_BINARY if alike else cls.REAL


@dataclass(frozen=True)
class Graph:
    """A whole attributed graph before it is split over clients.

    Attributes:
        x: features [N, F], or [N, S, F] where every node has S samples.
        y: labels [N] (or [N, S]); -1 means unlabelled.
        edge_index: [2, E], canonical (see module docstring).
        train, val, test: public split masks [N], or [N, S] where labels are; None where the data set has none.
        name: for reports.
        clients: which client holds each node [N], numbered from 0 without a gap; None where nobody says.
    """

    x: Tensor
    y: Tensor
    edge_index: EdgeIndex
    name: str
    train: NodeMask | None = None
    val: NodeMask | None = None
    test: NodeMask | None = None
    clients: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        return self.x.shape[-1]

    @property
    def num_classes(self) -> int:
        return int(self.y.max().item()) + 1

    @property
    def num_clients(self) -> int | None:
        """How many clients the graph itself names."""
        return None if self.clients is None else int(self.clients.max().item()) + 1

    def degrees(self) -> Degrees:
        """Number of neighbours [N], self-loops not counted."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)


@dataclass(frozen=True)
class ClientGraph:
    """What client ``client`` holds before any message: own nodes and edges, ids and degrees of remote neighbours.

    Attributes:
        nodes: global ids [n], ascending. Positions in this list are the local indices used below.
        x, y: features [n, F] (or [n, S, F]) and labels [n] (or [n, S]).
        edge_index: own edges [2, e] in local indices.
        degrees: neighbours of the own nodes in the whole graph [n].
        remote_nodes: global ids [r] of the neighbours at other clients, ascending.
        remote_degrees: their degrees in the whole graph [r]; None for an observer that does not know them.
        boundary: [2, b]: local index of an own node, position of its neighbour in ``remote_nodes``.
        train, val, test: split masks, shaped as ``y``.
    """

    client: int
    nodes: NodeIds
    x: Tensor
    y: NodeLabels
    edge_index: EdgeIndex
    degrees: Degrees
    remote_nodes: RemoteIds
    remote_degrees: RemoteIds | None
    boundary: BoundaryEdges
    train: NodeMask
    val: NodeMask
    test: NodeMask

    def edges(self) -> Tensor:
        """Return all edges ``i <- j`` into own nodes as global ids [2, e + b], those among own nodes first."""
        cross = torch.stack([self.nodes[self.boundary[0]], self.remote_nodes[self.boundary[1]]])
        return torch.cat([self.nodes[self.edge_index], cross], 1)

    def keeping(self, edges: Tensor) -> ClientGraph:
        """Return it with only those of its edges that are among ``edges`` (global ids [2, E], ``i <- j``)."""
        largest = max((int(ids.max().item()) for ids in (self.edges(), edges) if ids.numel()), default=0) + 1
        kept = torch.isin(self.edges()[0] * largest + self.edges()[1], edges[0] * largest + edges[1])
        count = self.edge_index.shape[1]
        return replace(self, edge_index=self.edge_index[:, kept[:count]]).keeping_cross(kept[count:])

    def keeping_cross(self, cross: Tensor) -> ClientGraph:
        """Return it with only those of its edges to other clients that are in the mask ``cross`` [b]."""
        used, position = torch.unique(self.boundary[1, cross], return_inverse=True)
        return replace(
            self,
            remote_nodes=self.remote_nodes[used],
            remote_degrees=None if self.remote_degrees is None else self.remote_degrees[used],
            boundary=torch.stack([self.boundary[0, cross], position]),
        )


@dataclass(frozen=True)
class _EdgesByRow:
    """Where the edges into every node stand, so that a client's edges are found without reading everybody else's.

    Attributes:
        first: [N], where the edges into each node begin among all, by row.
        degrees: how many there are [N].
        order: [E], the edges by row; None where they are stored so.
    """

    first: Tensor
    degrees: Degrees
    order: Tensor | None

    @staticmethod
    def of(edge_index: Tensor, num_nodes: int) -> _EdgesByRow:
        """Return it for ``edge_index`` [2, E]; remembered as long as these edges are."""
        found: _EdgesByRow | None = _sorted_edges.get(edge_index)  # type: ignore[no-untyped-call]
        if found is None or len(found.degrees) != num_nodes:
            found = _sorted_edges[edge_index] = _EdgesByRow._made(edge_index[0], num_nodes)
        return found

    @staticmethod
    def _made(row: Tensor, num_nodes: int) -> _EdgesByRow:
        degrees = torch.bincount(row, minlength=num_nodes)
        stored = bool((row[1:] >= row[:-1]).all())
        return _EdgesByRow(degrees.cumsum(0) - degrees, degrees, None if stored else row.argsort(stable=True))

    def into(self, nodes: Tensor) -> Tensor:
        """Return which edges go into ``nodes`` [n], in the order in which they are stored."""
        counts = self.degrees[nodes]
        skipped = self.first[nodes] - (counts.cumsum(0) - counts)
        places = torch.arange(int(counts.sum().item())) + skipped.repeat_interleave(counts)
        return places if self.order is None else self.order[places].sort().values


_sorted_edges = WeakTensorKeyDictionary()
"""By the tensor of all edges, which graphs with other rows share; the attributes of a graph are its fields alone."""


def _places(nodes: Tensor, asked: Tensor) -> Tensor:
    """Return where ``asked`` [e] stand among ascending ``nodes`` [n], -1 for those that do not."""
    if not len(nodes):
        return torch.full_like(asked, -1)
    place = torch.searchsorted(nodes, asked).clamp(max=len(nodes) - 1)
    return torch.where(nodes[place] == asked, place, -1)


@dataclass(frozen=True)
class FederatedGraph:
    """A graph split over clients. Clients may overlap; split masks belong to (client, node).

    Attributes:
        x, y, edge_index, name: as in :class:`Graph`.
        clients: ascending global node ids per client. Nodes may belong to no client (unbalanced partitions drop some);
            edges to such nodes are not in ``edge_index``.
        train, val, test: per client, masks [n_k] aligned with ``clients[k]``, or [n_k, S] where labels are [N, S].
        num_classes: number of label values, a public fact.
    """

    x: Tensor
    y: Tensor
    edge_index: EdgeIndex
    clients: tuple[Tensor, ...]
    train: tuple[Tensor, ...]
    val: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    name: str
    num_classes: int
    features: FeatureKind

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        return self.x.shape[-1]

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    def schema(self) -> dict[str, Any]:
        """Return what is public about the data, by the names of ``fglaudit.view.PublicFacts``."""
        return {
            "features": self.features,
            "num_nodes": self.num_nodes,
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "num_clients": self.num_clients,
        }

    def degrees(self) -> Degrees:
        """Number of neighbours in the whole graph [N], self-loops not counted."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    def owner(self) -> Tensor:
        """Client of every node [N], -1 for nodes of no client.

        Raises:
            FglauditError: if clients overlap; names the first node and how many clients hold it.
        """
        holders = torch.zeros(self.num_nodes, dtype=torch.long)
        owner = torch.full((self.num_nodes,), -1)
        for k, nodes in enumerate(self.clients):
            holders[nodes] += 1
            owner[nodes] = k
        if bool((holders > 1).any()):
            node = int((holders > 1).nonzero()[0].item())
            raise FglauditError(
                f"this protocol needs disjoint clients; the partition gives node {node} to {int(holders[node].item())}"
                " of them; use scheme: dirichlet, metis, louvain or per-node"
            )
        return owner

    def client(self, k: int) -> ClientGraph:
        """Return what client ``k`` legitimately holds, in time of what it holds: the edges are sorted once."""
        nodes, index = self.clients[k], _EdgesByRow.of(self.edge_index, self.num_nodes)
        row, col = self.edge_index[:, index.into(nodes)]
        here = _places(nodes, row)
        place = _places(nodes, col)
        inner = place >= 0
        cross = ~inner
        remote, remote_position = torch.unique(col[cross], return_inverse=True)
        return ClientGraph(
            client=k,
            nodes=nodes,
            x=self.x[nodes],
            y=self.y[nodes],
            edge_index=torch.stack([here[inner], place[inner]]),
            degrees=index.degrees[nodes],
            remote_nodes=remote,
            remote_degrees=index.degrees[remote],
            boundary=torch.stack([here[cross], remote_position]),
            train=self.train[k],
            val=self.val[k],
            test=self.test[k],
        )


def last_places(held: Sequence[Tensor], num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return where each node stands last in the concatenation of ``held``, the ids of every client's nodes, -1 where in
    none [num_nodes], and whose each place of the concatenation is [sum of lengths]."""
    nodes = torch.cat([*held])
    client = torch.arange(len(held)).repeat_interleave(torch.tensor([len(ids) for ids in held], dtype=torch.long))
    return torch.full((num_nodes,), -1).scatter_reduce(0, nodes, torch.arange(len(nodes)), "amax"), client


def positions(nodes: Tensor, num_nodes: int) -> Tensor:
    """Return where every id below ``num_nodes`` stands in ``nodes`` [n], -1 for those that do not [num_nodes]."""
    place = torch.full((num_nodes,), -1, device=nodes.device)
    place[nodes] = torch.arange(len(nodes), device=nodes.device)
    return place


def first_of_each(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the different entries, or rows, of ``values`` [n, ...], ascending [u], which one each is [n], and where
    each stands first [u]."""
    kinds, which = torch.unique(values, return_inverse=True, dim=None if values.dim() == 1 else 0)
    places = torch.arange(len(values), device=values.device)
    return kinds, which, places.new_full((len(kinds),), len(values)).scatter_reduce(0, which, places, "amin")


def edges_among(nodes: Tensor, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the edges of ``edge_index`` [2, E] that join two of ``nodes`` [n], renumbered by their places there."""
    edges = positions(nodes, num_nodes)[edge_index]
    return edges[:, (edges >= 0).all(0)]


def components(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the number of each node's connected component [N] over edges [2, E] of any direction, counted from 0 in
    the order of their smallest nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    row, column = edge_index.cpu().numpy()
    links = coo_array((row >= 0, (row, column)), shape=(num_nodes, num_nodes))
    return torch.from_numpy(connected_components(links, directed=False)[1]).long().to(edge_index.device)


def canonical_edges(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return ``edge_index`` [2, E] with both directions of every edge, no self-loops, no duplicates, sorted."""
    row, col = edge_index
    keep = row != col
    row, col = row[keep], col[keep]
    codes = torch.unique(torch.cat([row * num_nodes + col, col * num_nodes + row]))
    return torch.stack([torch.div(codes, num_nodes, rounding_mode="floor"), codes % num_nodes])


def whole(graph: Graph, train: Tensor, val: Tensor, test: Tensor) -> FederatedGraph:
    """Return ``graph`` as one client that owns everything; masks [N]."""
    return federate(graph, [torch.arange(graph.num_nodes)], train, val, test)


def federate(graph: Graph, clients: Sequence[Tensor], train: Tensor, val: Tensor, test: Tensor) -> FederatedGraph:
    """Split ``graph`` over ``clients`` (node ids [n_k] each); masks [N] are split the same way."""
    nodes = tuple(torch.sort(ids).values for ids in clients)
    return FederatedGraph(
        x=graph.x,
        y=graph.y,
        edge_index=graph.edge_index,
        clients=nodes,
        train=tuple(train[ids] for ids in nodes),
        val=tuple(val[ids] for ids in nodes),
        test=tuple(test[ids] for ids in nodes),
        name=graph.name,
        num_classes=graph.num_classes,
        features=FeatureKind.of(graph.x),
    )
