"""The edges that clients keep, the nodes within a number of hops that they need, the edges among them they know.

All functions work on pairs (client, node) of many clients at once: of as many as ``TABLE_ENTRIES`` pairs allow, and on
about ``PART_EDGES`` edges at a time, so that no temporary array grows with the number of clients. An edge ``i <- j``
belongs to the owner of ``i``: a defense may have dropped it at ``i``'s side and kept it at ``j``'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import SERVER
from fglaudit.view import Observer

TABLE_ENTRIES = 2**24
PART_EDGES = 2**22


@dataclass(frozen=True)
class KeptEdges:
    """Edges ``i <- j`` with self-loops, by receiving node.

    Attributes:
        start: [N + 1] offsets of the edges of node i.
        source: [E] the nodes j.
        degrees: [N] neighbours in the whole graph, self-loops not counted. Dropped edges do not lower them: weights
            then never exceed those of the whole graph, and bounds on its columns remain valid.
        owner: [N] client of every node, -1 for none (then it has no edges, not even to itself).
    """

    start: Tensor
    source: Tensor
    degrees: Tensor
    owner: Tensor

    @staticmethod
    def of(clients: Sequence[ClientGraph], degrees: Tensor) -> KeptEdges:
        """Collect the edges of the (prepared) client graphs; nothing is sorted globally, time is linear in E.

        ``degrees`` [N] are those of the whole graph. ``source`` takes 4 bytes per edge below 2^31 nodes.
        """
        num_nodes = len(degrees)
        counts = torch.zeros(num_nodes, dtype=torch.long)
        owner = torch.full((num_nodes,), -1)
        for client in clients:
            local = torch.bincount(client.edge_index[0], minlength=len(client.nodes))
            remote = torch.bincount(client.boundary[0], minlength=len(client.nodes))
            counts[client.nodes] = local + remote + 1
            owner[client.nodes] = client.client
        start = torch.zeros(num_nodes + 1, dtype=torch.long)
        torch.cumsum(counts, 0, out=start[1:])
        source = torch.empty(int(start[-1].item()), dtype=torch.int32 if num_nodes < 2**31 else torch.long)
        for client in clients:
            rows = torch.cat([client.edge_index[0], client.boundary[0], torch.arange(len(client.nodes))])
            order = torch.argsort(rows, stable=True)
            columns = [client.nodes[client.edge_index[1]], client.remote_nodes[client.boundary[1]], client.nodes]
            rows = rows[order]
            rank = torch.arange(len(rows)) - row_starts(rows, len(client.nodes))[rows]
            source[start[client.nodes[rows]] + rank] = torch.cat(columns)[order].to(source.dtype)
        return KeptEdges(start, source, degrees, owner)

    def to(self, device: torch.device) -> KeptEdges:
        return KeptEdges(*(t.to(device) for t in (self.start, self.source, self.degrees, self.owner)))

    def receivers(self) -> Tensor:
        """Node i of every edge [E]."""
        nodes = torch.arange(len(self.degrees), device=self.source.device, dtype=self.source.dtype)
        return torch.repeat_interleave(nodes, self.start.diff())

    def scale(self) -> Tensor:
        """``1 / sqrt(d_i + 1)`` [N] in float64: an edge's weight is the product of both ends' scales."""
        return (self.degrees.double() + 1).rsqrt()

    def incoming(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return (position in ``nodes``, source) of all edges into ``nodes`` [n]."""
        count = self.start[nodes + 1] - self.start[nodes]
        position = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), count)
        first = count.cumsum(0) - count
        within = torch.arange(len(position), device=nodes.device) - first[position]
        return position, self.source[self.start[nodes][position] + within].long()

    def incoming_parts(self, nodes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what :meth:`incoming` returns for ``nodes`` [n], about :data:`PART_EDGES` edges at a time."""
        ends = (self.start[nodes + 1] - self.start[nodes]).cumsum(0)
        if not len(nodes) or int(ends[-1].item()) <= PART_EDGES:
            yield self.incoming(nodes)
            return
        marks = torch.arange(PART_EDGES, int(ends[-1].item()), PART_EDGES, device=ends.device)
        cuts = torch.unique(torch.searchsorted(ends, marks, right=True)).tolist()
        for low, high in itertools.pairwise([*([0] if cuts[0] else []), *cuts, len(nodes)]):
            position, source = self.incoming(nodes[low:high])
            yield position + low, source


@dataclass(frozen=True)
class HeldRows:
    """The nodes for which clients hold a feature sum, all clients after one another, ascending within each.

    Attributes:
        client, node: [M].
        distance: hops from the client's own nodes [M]; 0 for own nodes.
        splits: [K + 1] offsets of the clients.
    """

    client: Tensor
    node: Tensor
    distance: Tensor
    splits: Tensor

    @staticmethod
    def within(edges: KeptEdges, num_clients: int, hops: int) -> HeldRows:
        """Rows of all nodes at most ``hops`` hops away from a client's own nodes."""
        num_nodes = len(edges.owner)
        found, distances = [], []
        for low, high in _tables(num_clients, num_nodes):
            own = ((edges.owner >= low) & (edges.owner < high)).nonzero().squeeze(1)
            frontier = (edges.owner[own] - low) * num_nodes + own
            distance = torch.full(((high - low) * num_nodes,), -1, dtype=torch.int32, device=own.device)
            distance[frontier] = 0
            for hop in range(1, hops + 1):
                for position, source in edges.incoming_parts(frontier % num_nodes):
                    reached = torch.div(frontier, num_nodes, rounding_mode="floor")[position] * num_nodes + source
                    distance[reached[distance[reached] < 0]] = hop
                frontier = (distance == hop).nonzero().squeeze(1)
            codes = (distance >= 0).nonzero().squeeze(1)
            distances.append(distance[codes].long())
            found.append(codes + low * num_nodes)
        whole = torch.cat(found)
        client = torch.div(whole, num_nodes, rounding_mode="floor")
        return HeldRows(client, whole % num_nodes, torch.cat(distances), row_starts(client, num_clients))

    def of_clients(self, low: int, high: int) -> HeldRows:
        """Return the rows of the clients ``low`` to ``high - 1``, numbered from 0."""
        part = slice(int(self.splits[low].item()), int(self.splits[high].item()))
        splits = self.splits[low : high + 1] - self.splits[low]
        return HeldRows(self.client[part] - low, self.node[part], self.distance[part], splits)

    def known_edges(self, edges: KeptEdges, reach: int, depth: int | None = None) -> tuple[Tensor, Tensor]:
        """Return (receiving row, source row) of the edges among a client's rows that it knows.

        A client knows the edges with one end at most ``reach`` hops from its own nodes, and every self-loop.

        Args:
            depth: leave out edges into rows more than so many hops from the client's own nodes; None: none.
        """
        num_nodes, num_clients = len(edges.owner), len(self.splits) - 1
        rows, columns = [], []
        for low, high in _tables(num_clients, num_nodes):
            first, part = int(self.splits[low].item()), self.of_clients(low, high)
            place = torch.full(((high - low) * num_nodes,), -1, dtype=torch.int32, device=part.node.device)
            place[part.client * num_nodes + part.node] = torch.arange(
                len(part.node), dtype=place.dtype, device=place.device
            )
            wanted = torch.ones_like(part.node, dtype=torch.bool) if depth is None else part.distance <= depth
            receiving = wanted.nonzero().squeeze(1)
            for position, source in edges.incoming_parts(part.node[receiving]):
                row = receiving[position]
                column = place[part.client[row] * num_nodes + source].long()
                held = column >= 0
                row, column = row[held], column[held]
                nearer = torch.minimum(part.distance[row], part.distance[column])
                known = (nearer <= reach) | (row == column)
                rows.append(row[known] + first)
                columns.append(column[known] + first)
        return torch.cat(rows), torch.cat(columns)


def _tables(num_clients: int, num_nodes: int) -> Iterator[tuple[int, int]]:
    """Yield runs of clients of which a table of (client, node) has at most :data:`TABLE_ENTRIES`, or single clients."""
    size = max(1, TABLE_ENTRIES // max(1, num_nodes))
    for low in range(0, num_clients, size):
        yield low, min(low + size, num_clients)


def symmetric_weights(row: Tensor, column: Tensor, degrees: Tensor) -> Tensor:
    """Return ``1 / sqrt((d_row + 1)(d_column + 1))`` [e] in float32; ``degrees`` [M] without self-loops."""
    scale = (degrees.double() + 1).rsqrt()
    return (scale[row] * scale[column]).float()


def mean_weights(row: Tensor, degrees: Tensor) -> Tensor:
    """Return ``1 / (d_row + 1)`` [e] in float32: means over closed neighbourhoods; ``degrees`` as above."""
    return (degrees.double() + 1).reciprocal()[row].float()


def local_degrees(row: Tensor, column: Tensor, num_rows: int) -> Tensor:
    """Return the degrees [num_rows] within an edge list, self-loops not counted."""
    return torch.bincount(row[row != column], minlength=num_rows)


def with_neighbors(mask: Tensor, edge_index: Tensor) -> Tensor:
    """Return the node mask [N] with all neighbours of its nodes added."""
    grown = mask.clone()
    grown[edge_index[1][mask[edge_index[0]]]] = True
    return grown


def foreign_nodes_within(graph: FederatedGraph, observer: Observer, hops: int) -> Tensor:
    """Return ids of the nodes in the sums over ``hops`` hops that ``observer`` sees, ascending.

    The server and the wire see sums over every client's nodes; clients see sums over the nodes within ``hops`` hops of
    their own. Nodes of the observing clients are never among them, and with 0 hops nothing is summed.
    """
    mine, owned = (torch.zeros(graph.num_nodes, dtype=torch.bool) for _ in range(2))
    owned[torch.cat(graph.clients)] = True
    for k in observer.clients:
        mine[graph.clients[k]] = True
    reached = mine
    if hops > 0 and (observer.wire or SERVER in observer.parties):
        reached = owned
    else:
        for _ in range(hops):
            reached = with_neighbors(reached, graph.edge_index)
    return (reached & ~mine).nonzero().squeeze(1)
