"""What an observer knows of the graph before it reads a message: its own nodes, degrees, and closed neighbourhoods."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import own_graphs
from fglaudit.graph import ClientGraph
from fglaudit.payloads import SERVER
from fglaudit.view import View


def sees_deliveries(view: View) -> bool:
    """Whether the observer sees every message to the server and from it, sealed or not."""
    return view.observer.wire or SERVER in view.observer.parties


def own_nodes(view: View) -> Tensor:
    """Return which nodes belong to the observer [N]."""
    mine = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    for client in view.own:
        mine[client.nodes] = True
    return mine


def own_clients(view: View) -> Tensor:
    """Return the client of every node [N] that belongs to the observer, -1 for all others."""
    owner = torch.full((view.public.num_nodes,), -1)
    for client in view.own:
        owner[client.nodes] = client.client
    return owner


def known_degrees(view: View) -> Tensor:
    """Return the degree of every node [N] as far as the observer knows it, else -1."""
    n = view.public.num_nodes
    degrees = torch.full((n,), -1)
    if view.degrees is not None:
        degrees = view.degrees.clone()
    elif view.topology is not None:
        degrees = torch.bincount(view.topology[0], minlength=n)
    for client in view.own:
        if client.remote_degrees is not None:
            degrees[client.remote_nodes] = client.remote_degrees
        degrees[client.nodes] = client.degrees
    return degrees


def knows_no_foreign_degree(view: View) -> bool:
    """Whether the observer knows the degree of no node but its own."""
    return bool((known_degrees(view)[~own_nodes(view)] < 0).all())


def known_edges(view: View) -> Tensor:
    """Return the closed neighbourhoods the observer knows: pairs [2, E], both directions and self-loops, sorted."""
    n = view.public.num_nodes
    parts = [torch.arange(n).expand(2, -1)]
    if view.topology is not None:
        parts.append(view.topology)
    for client in own_graphs(view):
        cross = torch.stack([client.nodes[client.boundary[0]], client.remote_nodes[client.boundary[1]]])
        parts += [client.nodes[client.edge_index], cross, cross.flip(0)]
    row, column = torch.cat(parts, dim=1)
    codes = torch.unique(row * n + column)
    return torch.stack([codes // n, codes % n])


def own_without_edges(view: View) -> tuple[ClientGraph, ...]:
    """Return the observer's clients, as if no edge were known to them."""
    return tuple(dataclasses.replace(c, edge_index=c.edge_index[:, :0], boundary=c.boundary[:, :0]) for c in view.own)
