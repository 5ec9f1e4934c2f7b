"""Self-test problems for attacks on FedGAT's messages: one row per neighbourhood, at most, is not the observer's.

Up to 256 of the observer's nodes get exactly one neighbour each, at another client and without other neighbours; an
observer that owns nothing gets nodes without neighbours. Public facts stay; rows of others are drawn from the prior.
The messages are those of the protocol on this graph, without a defense.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import (
    MemoryMessages,
    dealt,
    planted_federation,
    planted_graph,
    planted_rows,
    rehearsed,
    with_own_rows,
)
from fglaudit.graph import FeatureKind, FederatedGraph, first_of_each
from fglaudit.interfaces import Planted
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.view import View

_NEIGHBOURHOODS = 256
_ENUMERATED = 8
"""Up to so many discrete features all rows there can be are listed; of more the drawn ones are hardly ever alike."""


def masked_payload(view: View) -> type[MaskedMatrices] | type[MaskedVectors]:
    """Return the variant of masked messages that ``view`` holds."""
    return MaskedMatrices if next(iter(view.messages.of(MaskedVectors)), None) is None else MaskedVectors


@dataclass(frozen=True)
class PlantedPairs:
    """The problem described in the module docstring, before anything is sent.

    Attributes:
        view: the observer's, with the messages of the cell.
        graph: what the protocol is rehearsed on.
        pairs: (own node, foreign node) of every cross-client edge [2, P].
        nodes, rows: the answer: foreign nodes [R] and their rows [R, F].
    """

    view: View
    graph: FederatedGraph
    pairs: Tensor
    nodes: Tensor
    rows: Tensor


def plant_masked_pairs(view: View, rng: torch.Generator, payload: type[Payload] = MaskedMatrices) -> Planted:
    """Return the problem described in the module docstring, sent as ``payload``.

    Args:
        payload: :class:`MaskedMatrices` or :class:`MaskedVectors`.
    """
    rng = split(rng, "plant")
    planted = planted_pairs(view, rng)
    return Planted(rehearsed(planted.view, planted.graph, [payload], rng), planted.rows, planted.nodes)


def plant_raw_rows(view: View, rng: torch.Generator) -> Planted:
    """Return rows of others as they are, a message each.

    They are not rehearsed: which rows are sent, to whom and in which round is each protocol's own affair.
    """
    planted = planted_pairs(view, split(rng, "plant"), alone=True)
    nodes, receiver = planted.nodes, view.observer.clients[0] if view.own else SERVER
    place = torch.full((view.public.num_nodes,), -1)
    for client, held in enumerate(planted.graph.clients):
        place[held] = client
    rows, splits = RawFeatures(nodes, planted.rows), torch.arange(len(nodes) + 1)
    sent = MessageBatch(0, place[nodes], torch.full_like(nodes, receiver), rows, splits)
    return Planted(replace(planted.view, messages=MemoryMessages((sent,))), planted.rows, nodes)


def planted_pairs(view: View, rng: torch.Generator, *, alone: bool = False, linked: bool = False) -> PlantedPairs:
    """Return the pairs that are planted.

    Args:
        alone: foreign nodes without a neighbour are part of it too.
        linked: the foreign nodes of every two pairs are neighbours of each other, and no two of them have the same
            row, by which alone they are told apart; pairs beyond the rows there are, and an odd one, are left out.
    """
    public, n = view.public, view.public.num_nodes
    mine = own_nodes(view)
    others = (~mine).nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=rng)][:_NEIGHBOURHOODS]
    own = mine.nonzero().squeeze(1)[:_NEIGHBOURHOODS]
    pairs = torch.stack([own[: len(others)], others[: len(own)]])
    nodes = others if alone or len(own) == 0 else pairs[1]
    rows = planted_rows(view, nodes, rng)
    if linked:
        rows = _distinct(view, rows, rng)
        pairs, rows = (part[: len(rows) // 2 * 2] for part in (pairs.T, rows))
        pairs, nodes = pairs.T, pairs[:, 1]
    if public.features is FeatureKind.REAL:
        rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
    x = with_own_rows(view, torch.zeros(n, public.num_features))
    x[nodes] = rows
    taking_part = torch.isin(torch.arange(n), torch.cat([nodes, pairs.flatten()]))
    owner = torch.where(taking_part, dealt(view, nodes), -1)
    outer = pairs[1].view(-1, 2).T if linked else None
    planted, edges = planted_graph(view, pairs, inner_edges=False, outer_edges=outer)
    return PlantedPairs(planted, planted_federation(view, x, edges, owner, rng), pairs, nodes, rows)


def _distinct(view: View, rows: Tensor, rng: torch.Generator) -> Tensor:
    """Return rows [R', F] no two of which are the same in messages, at most as many as ``rows`` [R, F]."""
    features = view.public.num_features
    if view.public.features is FeatureKind.REAL:  # longer ones would lose their length, and a single feature all else
        length = 0.5 + 0.5 * torch.rand(len(rows), 1, generator=rng)
        shortened: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12) * length
        return shortened
    if features > _ENUMERATED:
        return rows[first_of_each(rows)[2].sort().values]
    codes = 1 + torch.randperm(2**features - 1, generator=rng)[: len(rows)]
    bits = (codes[:, None] >> torch.arange(features) & 1).float()
    return bits / bits.sum(1, keepdim=True) if view.public.features is FeatureKind.SCALED_BINARY else bits
