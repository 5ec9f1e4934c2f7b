"""Communities found by Louvain (Blondel et al., 2008), packed into clients of similar size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fglaudit.graph import Graph
from fglaudit.partition.assign import lists_of, numpy_seed

if TYPE_CHECKING:
    import networkx as nx


def louvain(graph: Graph, clients: int, rng: torch.Generator) -> list[Tensor]:
    """Return node ids per client; every node goes to exactly one and no client is empty.

    Communities of more than N / clients nodes are split (in breadth-first order, so that pieces stay connected where
    possible); then the largest remaining piece goes to the smallest client, repeatedly.
    """
    import networkx as nx  # a tenth of a second, which few processes need

    seed = numpy_seed(rng)
    network: nx.Graph[int] = nx.Graph()
    network.add_nodes_from(range(graph.num_nodes))
    network.add_edges_from(graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t().tolist())
    communities = nx.community.louvain_communities(network, seed=seed)
    limit = max(graph.num_nodes // clients, 1)
    pieces: list[list[int]] = []
    for community in sorted(communities, key=lambda nodes: (-len(nodes), min(nodes))):
        order = _breadth_first(network, community) if len(community) > limit else sorted(community)
        pieces += [order[start : start + limit] for start in range(0, len(order), limit)]
    owner = torch.empty(graph.num_nodes, dtype=torch.long)
    filled = [0] * clients
    for piece in sorted(pieces, key=len, reverse=True):
        client = filled.index(min(filled))
        filled[client] += len(piece)
        owner[piece] = client
    return lists_of(owner, clients)


def _breadth_first(network: nx.Graph[int], nodes: set[int]) -> list[int]:
    import networkx as nx

    order: list[int] = []
    inner = network.subgraph(nodes)
    for component in sorted(nx.connected_components(inner), key=min):
        order += list(nx.bfs_tree(inner, min(component)))
    return order
