"""Self-test problems for attacks on FedGT's global nodes: the protocol's first round on made-up clients.

The observer's clients keep their nodes and rows, all other nodes are dealt evenly to the other clients.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_clients
from fglaudit.adversary.planting import planted_federation, rehearsed, with_own_rows
from fglaudit.payloads import GlobalNodes, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View


def dealt_nodes(view: View) -> Tensor:
    """Return the made-up client of every node [N]: neighbouring ids, but for the observer's own nodes."""
    owner = own_clients(view)
    rest = (owner < 0).nonzero().squeeze(1)
    mine = torch.tensor(view.observer.clients, dtype=torch.long)
    others = torch.arange(view.public.num_clients)
    others = others[~torch.isin(others, mine)]
    owner[rest] = others[torch.arange(len(rest)) * len(others) // len(rest)]
    return owner


def first_nodes(owner: Tensor, clients: Tensor) -> Tensor:
    """Return the first node of each of ``clients`` [K] as [K]."""
    return (owner == clients.unsqueeze(1)).int().argmax(1)


def rehearsed_round(
    view: View,
    x: Tensor,
    owner: Tensor,
    rng: torch.Generator,
    *,
    y: Tensor | None = None,
    everybody: bool = False,
    **settings: object,
) -> View:
    """Return what the observer has of the first round on nodes with rows ``x`` [N, F] and labels ``y`` [N].

    Every client makes one step. By default it trains on its first node, which has no neighbour, so that no other node
    reaches a cluster. With ``everybody`` it trains on all of its nodes, which form a ring (whose positional encodings
    have mean 0), and has a single global node, which becomes their mean.

    Args:
        owner: client of every node [N].
    """
    x = with_own_rows(view, x)
    edges = _rings(owner) if everybody else owner.new_empty(2, 0)
    graph = planted_federation(view, x, edges, owner, split(rng, "graph"))
    train = tuple(torch.ones_like(mask) for mask in graph.train) if everybody else graph.train
    graph = dataclasses.replace(graph, y=graph.y if y is None else y, train=train)
    view = dataclasses.replace(view, public=dataclasses.replace(view.public, sealed=(), facts=()))
    one_step = {"batch_size": len(owner), "local_epochs": 1, "sampling": "ppr", **settings}
    one_step |= {"global_nodes": 1, "momentum": 0.0} if everybody else {}
    return rehearsed(view, graph, (GlobalNodes, ModelUpdate), rng, rounds=1, **one_step)


def _rings(owner: Tensor) -> Tensor:
    """Return edges [2, N] that join the nodes of every client to a ring."""
    order = owner.argsort(stable=True)
    group = owner[order]
    last = torch.searchsorted(group, group, right=True) - 1
    after = torch.arange(len(group)) + 1
    after = torch.where(after > last, torch.searchsorted(group, group), after)
    return torch.stack([order, order[after]])
