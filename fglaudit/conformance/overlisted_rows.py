"""Does a protocol list nodes whose rows never reach a client? They thin out what it gets: of a hundredth of the nodes
all rows are an advantage of 0.01."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from fglaudit.conformance.exposed_rows import about_nodes
from fglaudit.conformance.side_channels import KeptMessages, aligned, moved, other_rows
from fglaudit.conformance.unlisted_rows import receives
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import Payload
from fglaudit.view import Observer


def overlisted(protocol: FederatedProtocol, graph: FederatedGraph, first: KeptMessages) -> str:
    """Return in words which client sees nothing of nodes that ``exposed`` lists for it; empty if none was seen to.

    The rows of half of them are other ones, of those furthest away, then of a quarter: something that the client
    receives must move, in any round, what weights carry on too. Clients that receive nothing made of rows are not asked
    about.

    Args:
        first: the messages of a training of ``protocol`` on ``graph`` without a defense.
    """
    listed = about_nodes(protocol, graph)
    for k in sorted({0, graph.num_clients - 1}):
        observer = Observer((k,), topology=True)
        nodes = protocol.exposed(graph, observer)
        sent = any(type(b.payload) in listed and bool(receives(observer, b).any()) for b in first.batches)
        if not sent or not len(nodes) or not _reach(protocol, graph, first, listed, observer, nodes):
            continue
        away = nodes[_distances(graph, graph.clients[k])[nodes].argsort(descending=True, stable=True)]
        for count in (-(-len(away) // 2), -(-len(away) // 4)):
            if not _reach(protocol, graph, first, listed, observer, away[:count]):
                return f"{observer.name} receives nothing made of rows of {count} of the {len(nodes)} listed for it"
    return ""


def _reach(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    first: KeptMessages,
    listed: set[type[Payload]],
    observer: Observer,
    nodes: Tensor,
) -> bool:
    """Whether other rows of ``nodes`` [n] move something that the observer receives."""
    x = graph.x.clone()
    x[nodes] = other_rows(x[nodes])
    if torch.equal(x, graph.x):
        return True
    other = KeptMessages.with_rows(protocol, graph, x)
    for before, after in zip(first.batches, other.batches, strict=False):
        if not aligned(before, after):
            return True
        if type(before.payload) not in listed:
            continue
        messages = before.entry_messages()[moved(before, after)]
        if bool(receives(observer, before)[messages].any()):
            return True
    return False


def _distances(graph: FederatedGraph, nodes: Tensor) -> Tensor:
    """Return the number of hops [N] from ``nodes`` to every node; infinity where there is no path."""
    ends = graph.edge_index.numpy()
    edges = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(graph.num_nodes, graph.num_nodes))
    found = dijkstra(edges.tocsr(), directed=False, indices=nodes.numpy(), unweighted=True, min_only=True)
    return torch.from_numpy(found)
