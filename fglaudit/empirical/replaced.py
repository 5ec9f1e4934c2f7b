"""Graphs that differ from a given one in one record: a node's row, all rows of one client, or one edge."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.empirical.canaries import LENGTH, canary_nodes, covered_nodes
from fglaudit.graph import FederatedGraph, canonical_edges

PAIRS = 20
"""Records that are replaced at most."""


@dataclasses.dataclass(frozen=True)
class Replaced:
    """One record replaced.

    Attributes:
        graph: with the other record.
        zeroed: whether its features are zeros, or the record is gone: it moves half as far as one that is replaced.
        what: in words.
    """

    graph: FederatedGraph
    zeroed: bool
    what: str


def replaced_records(graph: FederatedGraph, unit: str, rng: torch.Generator, pairs: int = PAIRS) -> list[Replaced]:
    """Return neighbours of ``graph``: nodes with fewest and most links and others at random, of every client in turn;
    rows of zeros, rows of other nodes, and long rows along one feature, all features and random directions. Only nodes
    that a guarantee of this ``unit`` names; none where it names none. Of the unit "edge" every other pair lacks an
    edge, the others have one more.
    """
    if unit == "edge":
        return _other_edges(graph, rng, pairs)
    if unit == "client":
        records = [graph.clients[int(k)] for k in torch.randperm(graph.num_clients, generator=rng)[:pairs]]
    else:
        named = covered_nodes(graph, unit)
        others = [
            int(held[int(torch.randint(len(held), (1,), generator=rng))])
            for k in torch.randperm(graph.num_clients, generator=rng)[:pairs].tolist()
            if len(held := graph.clients[k][torch.isin(graph.clients[k], named)])
        ]
        more = named[torch.randint(len(named), (pairs,), generator=rng)].tolist() if len(named) else []
        records = [torch.tensor([node]) for node in [*canary_nodes(graph, unit), *others, *more]]
    if not records:
        return []
    found = []
    for number in range(pairs):
        at = records[number % len(records)]
        kind = number % len(_KINDS)
        x = graph.x.clone()
        x[at] = _KINDS[kind][1](graph, at, rng).to(x)
        what = f"{_KINDS[kind][0]} in place of {'a client' if unit == 'client' else f'node {int(at[0])}'}"
        found.append(Replaced(dataclasses.replace(graph, x=x), kind == 0, what))
    return found


def _other_edges(graph: FederatedGraph, rng: torch.Generator, pairs: int) -> list[Replaced]:
    """Return ``graph`` with one edge fewer or more: edges of the best connected node first, then any."""
    n, found = graph.num_nodes, []
    row, column = graph.edge_index
    owned = torch.unique(torch.cat(graph.clients))
    best = int(graph.degrees().argmax().item())
    for number in range(pairs):
        if number % 2 == 0 and graph.edge_index.shape[1]:
            own = (row == best).nonzero().squeeze(1) if number == 0 else torch.arange(len(row))
            at = own[int(torch.randint(len(own), (1,), generator=rng))]
            one, other = int(row[at]), int(column[at])
            gone = ((row == one) & (column == other)) | ((row == other) & (column == one))
            edges, what = graph.edge_index[:, ~gone], f"no edge between nodes {one} and {other}"
        else:
            drawn = owned[torch.randint(len(owned), (2,), generator=rng)].tolist()
            one, other = (best, drawn[1]) if number == 1 else drawn
            more = torch.tensor([[one], [other]])
            edges = canonical_edges(torch.cat([graph.edge_index, more], 1), n)
            what = f"an edge between nodes {one} and {other}"
        found.append(Replaced(dataclasses.replace(graph, edge_index=edges), True, what))
    return found


def _zeros(graph: FederatedGraph, nodes: Tensor, rng: torch.Generator) -> Tensor:
    return torch.zeros_like(graph.x[nodes])


def _opposite(graph: FederatedGraph, nodes: Tensor, rng: torch.Generator) -> Tensor:
    """Return the rows turned around and made long, which is furthest from them after clipping."""
    return -LENGTH * graph.x[nodes]


def _natural(graph: FederatedGraph, nodes: Tensor, rng: torch.Generator) -> Tensor:
    return graph.x[torch.randint(graph.num_nodes, (len(nodes),), generator=rng)]


def _direction(graph: FederatedGraph, nodes: Tensor, rng: torch.Generator) -> Tensor:
    return LENGTH * torch.randn(graph.x[nodes].shape, generator=rng)


def _single(graph: FederatedGraph, nodes: Tensor, rng: torch.Generator) -> Tensor:
    rows = torch.zeros_like(graph.x[nodes])
    rows[..., int(torch.randint(graph.num_features, (1,), generator=rng))] = LENGTH
    return rows


_KINDS = (
    ("zeros", _zeros),
    ("the opposite, long", _opposite),
    ("another node's row", _natural),
    ("a long random row", _direction),
    ("a long row in one feature", _single),
)
