"""Self-test problems for attacks on ``NeighborSums``: every sum holds at most one row that the observer does not own.

Every node of the observer gets exactly one neighbour at another client, and that neighbour has no other, so one sum
shows its row directly. All other nodes are alone; the server and the wire see their rows in their own sums. Own rows,
ids, number of clients and public facts stay; rows of others are drawn from the prior; there is no defense.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes, sees_deliveries
from fglaudit.adversary.planting import MemoryMessages, planted_graph, planted_rows
from fglaudit.attacks.sums.recorded_sums import sees_parts
from fglaudit.attacks.sums.term_weights import term_weights
from fglaudit.interfaces import Planted
from fglaudit.payloads import SERVER, MessageBatch, NeighborSums
from fglaudit.rng import split
from fglaudit.structure import Sums
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
    strangers = [k for k in range(public.num_clients) if k not in view.observer.clients]
    owner = torch.full((n,), -1)
    for client in view.own:
        owner[client.nodes] = client.client
    owner[others] = torch.tensor(strangers, dtype=torch.long)[torch.arange(len(others)) % max(1, len(strangers))]
    if lone_nodes is None:
        lone_nodes = sees_deliveries(view) and view.topology is not None
    used = torch.unique(torch.cat([own, others if lone_nodes else pairs[1]]))
    targets = used[~mine[used]]
    x = torch.zeros(n, public.num_features)
    for client in view.own:
        x[client.nodes] = client.x.float()
    rows = planted_rows(view, targets, rng)
    x[targets] = rows

    planted, edges = planted_graph(view, pairs, inner_edges=True)
    degrees = torch.bincount(edges[0], minlength=n)
    batches = _simulate(view, x, torch.cat([edges, used.expand(2, -1)], dim=1), degrees, owner)
    return Planted(dataclasses.replace(planted, messages=MemoryMessages(batches)), rows, targets)


def _simulate(view: View, x: Tensor, edges: Tensor, degrees: Tensor, owner: Tensor) -> tuple[MessageBatch, ...]:
    """Return the messages of a pre-training aggregation that the observer sees.

    Args:
        x: rows of all nodes [N, F].
        edges: closed edges [2, E].
        degrees, owner: of all nodes [N].
    """
    public, n = view.public, view.public.num_nodes
    row, column = edges
    weight = term_weights(view, degrees, row, column).float()
    upload, place = torch.unique(owner[column] * n + row, return_inverse=True)
    sender, node = torch.div(upload, n, rounding_mode="floor"), upload % n
    parts = torch.zeros(len(upload), public.num_features).index_add_(0, place, weight[:, None] * x[column])
    total_nodes, total_place = torch.unique(node, return_inverse=True)
    totals = torch.zeros(len(total_nodes), public.num_features).index_add_(0, total_place, parts)
    # One hop: a total goes to the owner of its node; more hops: also to the owners of that node's neighbours.
    several_hops = public.structure.of(Sums).hops > 1
    delivery = torch.unique(owner[column] * n + row if several_hops else owner[total_nodes] * n + total_nodes)
    receiver, delivered = torch.div(delivery, n, rounding_mode="floor"), delivery % n
    up = _ragged(sender, node, parts, public.num_clients, up=True)
    down = _ragged(
        receiver, delivered, totals[torch.searchsorted(total_nodes, delivered)], public.num_clients, up=False
    )
    if sees_parts(view):
        return up, down
    seen = torch.tensor(view.observer.clients, dtype=torch.long)
    down = down if sees_deliveries(view) else down.select(torch.isin(down.receivers, seen))
    return up.select(torch.isin(up.senders, seen)), down


def _ragged(client: Tensor, nodes: Tensor, sums: Tensor, clients: int, *, up: bool) -> MessageBatch:
    """Return one message per client.

    Args:
        client: of every row, ascending [R].
        nodes: of every row [R].
        sums: [R, F].
        clients: number of clients.
        up: whether clients send to the server or receive from it.
    """
    everyone = torch.arange(clients)
    server = torch.full_like(everyone, SERVER)
    splits = torch.cat([everyone.new_zeros(1), torch.bincount(client, minlength=clients).cumsum(0)])
    return MessageBatch(0, everyone if up else server, server if up else everyone, NeighborSums(nodes, sums), splits)
