"""Graphs that differ from a given one in one record: a node's row, its label, a node with its edges, all rows or labels
of one client, or one edge; or in the labels of all validation nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglaudit.empirical.replays.canaries import LENGTH, canary_nodes, covered_nodes
from fglaudit.graph import FederatedGraph, canonical_edges

PAIRS = 20
"""Records that are replaced at most."""
_ALIKE = 3
"""Classes that all validation nodes get, one after the other."""
_STEPS = (1, 2, 3)
"""Distances for which a node is sought that has most training nodes near."""


@dataclasses.dataclass(frozen=True)
class Replaced:
    """One record replaced.

    Attributes:
        graph: with the other record.
        zeroed: whether its features are zeros, or the record is gone: it moves half as far as one that is replaced.
        what: in words.
        edges: whether a node's edges are gone with it. Whoever draws a number for every edge then draws others, so that
            lengths of steps do not compare.
        many: whether it is more than one record: what moves with them moves with one, and how far says nothing.
    """

    graph: FederatedGraph
    zeroed: bool
    what: str
    edges: bool = False
    many: bool = False


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


def far_reaching(graph: FederatedGraph, rng: torch.Generator) -> list[Replaced]:
    """Return ``graph`` with a long random row for the nodes that have most training nodes of their client within one,
    two and three steps: those whose row may enter most losses."""
    if graph.x.dim() != 2 or any(train.dim() != 1 for train in graph.train):
        return []
    row, column = graph.edge_index
    most = torch.zeros(len(_STEPS), graph.num_nodes)
    for held, train in zip(graph.clients, graph.train, strict=True):
        mine, trained = torch.zeros(2, graph.num_nodes, dtype=torch.bool)
        mine[held], trained[held] = True, train
        inside = mine[row] & mine[column]
        near = reached_within(graph.num_nodes, row[inside], column[inside], trained, max(_STEPS))
        most = torch.maximum(most, near[1:] * mine)
    found = []
    for node in dict.fromkeys(most.argmax(1).tolist()):
        x = graph.x.clone()
        x[node] = _direction(graph, torch.tensor([node]), rng)[0].to(x)
        found.append(Replaced(dataclasses.replace(graph, x=x), False, f"a long random row in place of node {node}"))
    return found


def reached_within(count: int, row: Tensor, column: Tensor, wanted: Tensor, steps: int) -> Tensor:
    """Return how many ``wanted`` nodes are within 0, 1, ... ``steps`` steps of every node [steps + 1, count]."""
    ones = np.ones(len(row))
    step = sp.csr_array((ones, (row.numpy(), column.numpy())), shape=(count, count)) + sp.eye_array(count)
    reach = sp.csr_array(sp.eye_array(count))[:, wanted.nonzero().squeeze(1).numpy()]
    found = [wanted.float()]
    for _ in range(steps):
        reach = sp.csr_array(step @ reach)
        reach.data[:] = 1
        found.append(torch.from_numpy(reach.sum(1)).float())
    return torch.stack(found)


def taken_away(graph: FederatedGraph, most: int, rng: torch.Generator, pairs: int) -> list[Replaced]:
    """Return ``graph`` without one node's edges and with zeros for its row, for nodes that have 1 to ``most`` edges
    within their clients: what is left of a node whose edges are part of the record."""
    row, column = graph.edge_index
    inside = torch.zeros(graph.num_nodes, dtype=torch.long)
    for held in graph.clients:
        mine = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(0, held, True)
        inside = torch.maximum(inside, torch.bincount(row[mine[row] & mine[column]], minlength=graph.num_nodes))
    named = ((inside > 0) & (inside <= most)).nonzero().squeeze(1)
    found = []
    for node in named[torch.randperm(len(named), generator=rng)[:pairs]].tolist():
        x = graph.x.clone()
        x[node] = 0
        left = graph.edge_index[:, (row != node) & (column != node)]
        world = dataclasses.replace(graph, x=x, edge_index=left)
        found.append(Replaced(world, True, f"node {node} taken away with its edges", edges=True))
    return found


def relabelled(graph: FederatedGraph, unit: str, rng: torch.Generator, pairs: int) -> list[Replaced]:
    """Return ``graph`` with the next class for one training node, or for all of one client, and with others for all
    validation nodes together, by which a training may be chosen: for guarantees that name labels too. None where nodes
    have several labels."""
    if graph.y.dim() != 1:
        return []
    trained = [held[train] for held, train in zip(graph.clients, graph.train, strict=True) if train.dim() == 1]
    records = [nodes for nodes in trained if len(nodes)]
    if unit != "client" and records:
        records = [node[None] for node in torch.unique(torch.cat(records))]
    found = []

    def relabel(nodes: Tensor, others: Tensor, who: str, *, many: bool = False) -> None:
        y = graph.y.clone()
        y[nodes] = others % graph.num_classes
        found.append(Replaced(dataclasses.replace(graph, y=y), False, f"other labels of {who}", many=many))

    chosen_by = [held[val] for held, val in zip(graph.clients, graph.val, strict=True) if val.dim() == 1]
    if len(chosen := torch.unique(torch.cat(chosen_by or [torch.empty(0, dtype=torch.long)]))):
        own = graph.y[chosen]
        alike = (torch.full_like(own, label) for label in range(min(_ALIKE, graph.num_classes)))
        for others in (own + 1, *alike):  # what is chosen by them need not differ every time
            relabel(chosen, others, "validation nodes", many=True)
    for number in torch.randperm(len(records), generator=rng)[:pairs].tolist():
        who = "a client" if unit == "client" else f"node {int(records[number])}"
        relabel(records[number], graph.y[records[number]] + 1, who)
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
            edges, what = without_edge(graph.edge_index, one, other), f"no edge between nodes {one} and {other}"
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


def without_edge(edge_index: Tensor, one: int, other: int) -> Tensor:
    """Return edges [2, E] without that between two nodes, in both directions."""
    row, column = edge_index
    gone = ((row == one) & (column == other)) | ((row == other) & (column == one))
    return edge_index[:, ~gone]
