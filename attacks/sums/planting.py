"""Self-test problems for attacks on ``NeighborSums``: every sum holds at most one row that the observer does not own.

Every node of the observer gets exactly one neighbour at another client, and that neighbour has no other, so one sum
shows its row directly. All other nodes are alone; the server and the wire see their rows in their own sums. Own rows,
ids, number of clients and public facts stay; rows of others are drawn from the prior. The messages are those of the
protocol on this graph, without a defense; uploads that the cell's defense seals are left out.
"""

from __future__ import annotations

import dataclasses

import torch

from fglaudit.adversary.known_graph import own_nodes, sees_deliveries
from fglaudit.adversary.planting import (
    MemoryMessages,
    dealt,
    planted_federation,
    planted_graph,
    planted_rows,
    rehearsed,
    with_own_rows,
)
from fglaudit.attacks.sums.recorded_sums import sees_parts
from fglaudit.interfaces import Planted
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.rng import split
from fglaudit.view import View


def plant_lone_neighbors(view: View, rng: torch.Generator, *, lone_nodes: bool | None = None) -> Planted:
    """Return the problem described in the module docstring.

    Args:
        lone_nodes: whether nodes that are no neighbours of own nodes are part of it; by default for the server and the
            wire if they know all edges, and so know the terms of their sums.
    """
    public, n = view.public, view.public.num_nodes
    rng = split(rng, "plant")
    mine = own_nodes(view)
    others = (~mine).nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=rng)]
    own = mine.nonzero().squeeze(1)
    pairs = torch.stack([own[: len(others)], others[: len(own)]])
    if lone_nodes is None:
        lone_nodes = sees_deliveries(view) and view.topology is not None
    used = torch.unique(torch.cat([own, others if lone_nodes else pairs[1]]))
    targets = used[~mine[used]]
    x = with_own_rows(view, torch.zeros(n, public.num_features))
    rows = planted_rows(view, targets, rng)
    x[targets] = rows

    planted, edges = planted_graph(view, pairs, inner_edges=True)
    graph = planted_federation(view, x, edges, dealt(view, targets), rng)
    planted = rehearsed(planted, graph, [NeighborSums], rng)
    return Planted(planted if sees_parts(view) else _without_parts(planted), rows, targets)


def _without_parts(view: View) -> View:
    """Return ``view`` without the uploads of others, which a defense of the cell seals."""
    readable = torch.tensor([SERVER, *view.observer.clients])
    batches = [batch.select(torch.isin(batch.senders, readable)) for batch in view.messages.of(NeighborSums)]
    return dataclasses.replace(view, messages=MemoryMessages(tuple(batch for batch in batches if len(batch.senders))))
