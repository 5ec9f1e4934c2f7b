"""Self-test problems for attacks on FedGAT's messages: one row per neighbourhood, at most, is not the observer's.

Up to 256 of the observer's nodes get exactly one neighbour each, at another client and without other neighbours; an
observer that owns nothing gets nodes without neighbours. Public facts stay; rows of others are drawn from the prior.
The messages are those of the protocol on this graph, without a defense.
"""

from __future__ import annotations

import torch

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import dealt, planted_federation, planted_graph, planted_rows, rehearsed
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted
from fglaudit.payloads import MaskedMatrices, MaskedVectors, Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.view import View

_NEIGHBOURHOODS = 256


def masked_payload(view: View) -> type[MaskedMatrices] | type[MaskedVectors]:
    """Return the variant of masked messages that ``view`` holds."""
    return MaskedMatrices if next(iter(view.messages.of(MaskedVectors)), None) is None else MaskedVectors


def plant_masked_pairs(view: View, rng: torch.Generator, payload: type[Payload] = MaskedMatrices) -> Planted:
    """Return the problem described in the module docstring, sent as ``payload``.

    Args:
        payload: :class:`MaskedMatrices`, :class:`MaskedVectors` or :class:`RawFeatures`.
    """
    public, n = view.public, view.public.num_nodes
    rng = split(rng, "plant")
    mine = own_nodes(view)
    others = (~mine).nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=rng)][:_NEIGHBOURHOODS]
    own = mine.nonzero().squeeze(1)[:_NEIGHBOURHOODS]
    pairs = torch.stack([own[: len(others)], others[: len(own)]])
    alone = len(own) == 0 or payload is RawFeatures
    targets = others if alone else pairs[1]
    rows = planted_rows(view, targets, rng)
    if public.features is FeatureKind.REAL:
        rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
    x = torch.zeros(n, public.num_features)
    for client in view.own:
        x[client.nodes] = client.x.float()
    x[targets] = rows
    taking_part = torch.isin(torch.arange(n), torch.cat([targets, pairs.flatten()]))
    owner = torch.where(taking_part, dealt(view, targets), -1)
    planted, edges = planted_graph(view, pairs, inner_edges=False)
    graph = planted_federation(view, x, edges, owner, rng)
    return Planted(rehearsed(planted, graph, [payload], rng), rows, targets)
