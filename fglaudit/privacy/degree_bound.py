"""Graphs whose nodes have at most D neighbours, and how many losses of a GNN one node can then change.

**The rule.** Every pair of nodes has a public pseudo-random priority, the same at both ends. A client ranks the edges
of each of its nodes among that node's edges within the client, and keeps an edge that ranks among the first D at *both*
ends. An edge to another client is kept where both ends have at most D neighbours in all: both owners know both degrees,
so they agree without a message. No node keeps more than D neighbours: one with more than D has no cross-client edges
left.

**The rule is not a local act.** Take away one node v, and a node u that had v among its first D takes in the edge to
its (D+1)-st neighbour w. With v therefore also the neighbours of w are affected, though w was never near v. A bound
that forgets this is too small by half (``tests/privacy/test_degree_bound.py`` has a graph that breaks it). It also
shows who can be promised anything: a node with n neighbours can be among the first D of all of them and change n
neighbourhoods, wherever D is. No rule that looks at a fixed distance avoids that: each of the n nodes sees one
neighbour less, whether that one kept its edge or not. So the promise about edges is for nodes with at most D edges.

**How many losses change.** Let K be the kept graph with v and K' that without, v having at most D edges within its
client, and T the nodes whose list of kept neighbours differs. Edges of K not at v stay in K', since ranks only improve.
v keeps every edge that the other end does, so ranks move only at the neighbours u of v in K, at most D of them; each
takes in at most one w_u. So T is made of these u and w_u. A node's output in a network of L layers differs only if, in
K, a node of T is at most L-1 steps away, or v is the node itself: its own list and all lists that it reads are the same
otherwise. Around the u's these are at most ``1 + D sum_{l<L} (D-1)^l`` nodes, the ball of radius L around v; around a
w_u, which has room for one more in K and so at most D-1 neighbours there, ``sum_{l<L} (D-1)^l``. Together::

    1 + 2 D sum_{l < L} (D-1)^l                         without degrees in the weights (means, attention, a public D)
    1 + 2 D sum_{l < L+1} (D-1)^l                       with symmetric normalisation: the degrees of T change too, which
                                                        their neighbours read, one step further

If nobody has more than D neighbours there is no w_u, and the 2 is a 1: for L = 2, ``1 + D + D(D-1)``, and ``D(D-1)^2``
more with symmetric normalisation. The same ball without the extra step holds in every case where edges are public and
only the node's features and label change: then neither the kept edges nor degrees do.

A changed loss replaces one clipped gradient by another, which moves their sum by twice the clip at most.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.context import Examples
from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph, FederatedGraph


def pair_priorities(first: Tensor, second: Tensor, seed: int) -> Tensor:
    """Return a priority for every unordered pair of node ids [E], the same for both orders; nonnegative int64.

    The mixing function is that of SplitMix64 (Steele, Lea and Flood 2014); int64 products wrap around as theirs do.
    """
    state = torch.minimum(first, second) * 0x1F123BB5 + torch.maximum(first, second) * 0x5851F42D4C957F2D + seed
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        state = (state ^ _shifted(state, shift)) * factor
    return _shifted(state ^ _shifted(state, 31), 1)


def _shifted(value: Tensor, bits: int) -> Tensor:
    """Shift right without the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def bound_degrees(client: ClientGraph, bound: int, seed: int) -> ClientGraph:
    """Return ``client`` with at most ``bound`` neighbours per node, by the rule above.

    Raises:
        FglauditError: unless ``bound`` is at least 1, or if the degrees of the remote neighbours are not known.
    """
    if bound < 1:
        raise FglauditError(f"a degree bound must be at least 1; got {bound}; raise it")
    row, column = client.edge_index
    priority = pair_priorities(client.nodes[row], client.nodes[column], seed)
    order = torch.argsort(priority, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    start = torch.zeros(len(client.nodes) + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(row, minlength=len(client.nodes)), 0, out=start[1:])
    rank = torch.empty_like(row)
    rank[order] = torch.arange(len(row)) - start[row[order]]
    # Both directions of an edge are listed; sorted by (row, column) and by (column, row) they stand at the same places.
    codes, reverse = row * len(client.nodes) + column, column * len(client.nodes) + row
    other = torch.argsort(codes)[torch.searchsorted(codes.sort().values, reverse)]
    kept = (rank < bound) & (rank[other] < bound)
    if client.remote_degrees is None:
        raise FglauditError(
            "a degree bound on cross-client edges needs the degrees of the remote neighbours; they are hidden"
        )
    near, far = client.boundary
    few = (client.degrees[near] <= bound) & (client.remote_degrees[far] <= bound)
    return dataclasses.replace(client, edge_index=client.edge_index[:, kept]).keeping_cross(few)


def changed_losses(examples: Examples, bound: int, *, private_edges: bool) -> int:
    """Return how many losses one node can change at most, where nodes keep at most ``bound`` neighbours."""
    steps = examples.hops + (1 if private_edges and examples.by_degree and examples.hops > 0 else 0)
    branch = bound * sum(int((bound - 1) ** step) for step in range(steps))
    return min(examples.per_node * (1 + (2 if private_edges else 1) * branch), examples.most)


def node_examples(
    graph: FederatedGraph,
    *,
    passes: int,
    hops: int,
    by_degree: bool = False,
    across: bool = False,
    pooled: bool = False,
    widest: int | None = None,
) -> Examples:
    """Return the facts where a training node has one loss at each client that holds it, or just one if ``pooled``."""
    copies = 1 if pooled else int(torch.bincount(torch.cat(graph.clients), minlength=graph.num_nodes).max().item())
    sizes = [int(train.sum().item()) for train in graph.train]
    most = sum(sizes) if across or pooled else copies * max(sizes)
    losses = (sum(sizes),) if pooled else tuple(sizes)
    return Examples(passes, hops, by_degree, across, copies, most, widest, pooled, losses)
