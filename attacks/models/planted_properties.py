"""Self-test of decoders: a federation whose clients differ widely, on a graph that the observer knows all of.

Nodes stand in cliques of one class each. A row has words of its class, and one of its own; a clique's size is drawn
apart from its class. All clients take plain steps, which are sums over their training nodes.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
from torch import Tensor

from fglaudit.attacks.models.planting import PLAIN_STEPS, learned_view, without_edges
from fglaudit.attacks.models.shadow_clients import drawn_federation
from fglaudit.attacks.models.shadow_federations import KnownGraph
from fglaudit.graph import FeatureKind, FederatedGraph, canonical_edges
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_SIZES = (2, 4, 8)
_TRAITS = (0.5, 1.0, 0.0)
"""Skewed classes, clients that prefer high or low degrees, everybody trains."""


def planted_clients(view: View, rng: torch.Generator) -> tuple[View, FederatedGraph]:
    """Return a view of the uploads of such a federation, and the federation."""
    public = view.public
    bare, others = without_edges(view)
    order = others[torch.randperm(len(others), generator=rng)]
    clique = _cliques(len(order))
    y = torch.full((public.num_nodes,), -1)
    classes = torch.randint(public.num_classes, (int(clique.max().item()) + 1,), generator=rng)
    y[order] = classes[clique]
    x = torch.zeros(public.num_nodes, public.num_features)
    half = max(1, public.num_features // 2)
    x[order] = (torch.arange(public.num_features) % public.num_classes == y[order, None]).float()
    x[order, half:] = 0
    x[order, half + torch.arange(len(order)) % (public.num_features - half)] = 1
    if public.features is FeatureKind.SCALED_BINARY:
        x = x / x.sum(1, keepdim=True).clamp(min=1)
    first, second = _pairs(clique)
    edges = canonical_edges(torch.stack([order[first], order[second]]), public.num_nodes)
    bare = dataclasses.replace(bare, auxiliary=Auxiliary(others, x[others], y[others]), topology=edges)
    graph = KnownGraph.of(bare, split(rng, "known graph"))
    federation = drawn_federation(bare, graph, torch.tensor(_TRAITS, dtype=torch.double), split(rng, "owners"))
    planted = learned_view(bare, federation, rng, PLAIN_STEPS)
    rehearse = planted.public.rehearse
    assert rehearse is not None  # see learned_view
    steps = dataclasses.replace(planted.public, rehearse=partial(rehearse, settings=PLAIN_STEPS))
    return dataclasses.replace(planted, public=steps), federation


def _cliques(count: int) -> Tensor:
    """Return the clique of each of ``count`` nodes, sizes in turn."""
    sizes = torch.tensor(_SIZES).repeat(count // sum(_SIZES) + 1)
    return torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:count]


def _pairs(clique: Tensor) -> tuple[Tensor, Tensor]:
    """Return all ordered pairs of places in the same clique, which stand side by side."""
    reach = max(_SIZES)
    first = torch.arange(len(clique)).repeat_interleave(2 * reach)
    second = first + torch.cat([torch.arange(-reach, 0), torch.arange(1, reach + 1)]).repeat(len(clique))
    there = (second >= 0) & (second < len(clique))
    first, second = first[there], second[there]
    same = clique[first] == clique[second]
    return first[same], second[same]
