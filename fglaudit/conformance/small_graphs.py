"""The graph on which a protocol is checked: as small as it allows, and split as it needs."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.conformance.runs import example_graph
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph, canonical_edges
from fglaudit.interfaces import FederatedProtocol


def small_graph(protocol: FederatedProtocol, like: FederatedGraph) -> FederatedGraph:
    """Return a graph of 60 nodes on which ``protocol`` trains, with a client per node if ``like`` has one; ``like``
    itself where the protocol refuses it, such as one that needs several samples of every node."""
    small = node_graph() if all(len(nodes) == 1 for nodes in like.clients) else example_graph()
    try:
        protocol.check(small)
    except FglauditError:
        return like
    return small


def node_graph() -> FederatedGraph:
    """Return the example graph, connected, with a client per node."""
    graph = example_graph(nodes=60, clients=60)
    return dataclasses.replace(graph, edge_index=connected(graph.edge_index, graph.num_nodes))


def connected(edges: Tensor, nodes: int) -> Tensor:
    """Return ``edges`` and those of a path through all nodes: some protocols on nodes refuse graphs in parts."""
    ids = torch.arange(nodes)
    return canonical_edges(torch.cat([edges, torch.stack([ids[:-1], ids[1:]])], 1), nodes)
