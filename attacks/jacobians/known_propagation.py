"""The weights with which GFL-APPNP's server mixes nodes for one client, as far as an observer can compute them.

They follow from the edges and the stated propagation. Without all edges a client knows its own neighbourhood; if no
neighbour has edges beyond it (the client knows their degrees), that is the whole component and the weights within are
the same as in the whole graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph
from fglaudit.nn.propagation import personalised_propagation
from fglaudit.structure import Propagation
from fglaudit.view import View


def propagation_of(rule: Propagation, edges: Tensor, num_nodes: int) -> Tensor:
    """Return the propagation matrix [N, N] of a graph with these edges [2, E]."""
    return personalised_propagation(edges, num_nodes, rule.alpha, rule.steps, truncated=rule.truncated)


def propagation_row(rule: Propagation, edges: Tensor, num_nodes: int, client: int) -> Tensor:
    """Return row ``client`` [N] of the propagation matrix of a graph, without the client itself.

    Args:
        rule: what the protocol states of it.
        edges: [2, E].
    """
    row = propagation_of(rule, edges, num_nodes)[client].clone()
    row[client] = 0
    return row


def known_propagation(view: View, client: ClientGraph) -> Tensor | None:
    """Return the weights [N] of others in what ``client`` receives, or None if the observer cannot compute them."""
    edges = view.topology
    if edges is None:
        edges = _whole_component(client)
    if edges is None:
        return None
    return propagation_row(view.public.structure.of(Propagation), edges, view.public.num_nodes, client.client)


def _whole_component(client: ClientGraph) -> Tensor | None:
    """Return all edges of the client's component [2, E] if it can tell that it knows them."""
    if client.remote_degrees is None or len(client.nodes) != 1:
        return None
    here = torch.bincount(client.boundary[1], minlength=len(client.remote_nodes))
    if not torch.equal(here, client.remote_degrees):
        return None
    pairs = torch.stack([client.nodes[client.boundary[0]], client.remote_nodes[client.boundary[1]]])
    return torch.cat([pairs, pairs.flip(0)], dim=1)
