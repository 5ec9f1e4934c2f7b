"""Self-test problems for attacks on FedGAT's messages: one row per neighbourhood, at most, is not the observer's.

Up to 256 of the observer's nodes get exactly one neighbour each, at another client and without other neighbours; an
observer that owns nothing gets nodes without neighbours. Public facts stay; rows of others are drawn from the prior;
there is no defense.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import MemoryMessages, planted_graph, planted_rows
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted
from fglaudit.payloads import SERVER, MaskedMatrices, MaskedVectors, MessageBatch, Payload, RawFeatures
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
    batch = _upload(view, targets, rows) if payload is RawFeatures else None
    if batch is None:
        members = targets[:, None] if alone else pairs.T
        centers = members[:, 0]
        owner = torch.zeros(n, dtype=torch.long)
        for client in view.own:
            owner[client.nodes] = client.client
        h = x[members].double()
        sent = _matrices(centers, h, rng) if payload is MaskedMatrices else _vectors(centers, h, rng)
        batch = MessageBatch(0, torch.full_like(centers, SERVER), owner[centers], sent)
    planted, _ = planted_graph(view, pairs, inner_edges=False)
    return Planted(dataclasses.replace(planted, messages=MemoryMessages((batch,))), rows, targets)


def _upload(view: View, nodes: Tensor, rows: Tensor) -> MessageBatch:
    """Return one message with ``rows`` of another client to the server."""
    stranger = min(set(range(view.public.num_clients)) - set(view.observer.clients))
    splits = torch.tensor([0, len(nodes)])
    return MessageBatch(0, torch.tensor([stranger]), torch.tensor([SERVER]), RawFeatures(nodes, rows), splits)


def _unit(h: Tensor) -> Tensor:
    unit: Tensor = h / h.norm(dim=-1, keepdim=True).clamp(min=1)
    return unit


def _matrices(centers: Tensor, h: Tensor, rng: torch.Generator) -> MaskedMatrices:
    """Return the matrices of neighbourhoods with rows ``h`` [P, b, F], the node itself first."""
    h = _unit(h)
    count, b, _ = h.shape
    basis = torch.linalg.qr(torch.randn(count, 2 * b, 2 * b, generator=rng, dtype=torch.double))[0].mT
    first, second = basis[:, :b], basis[:, b:]
    r = 0.5 + 1.5 * torch.rand(count, 1, 1, generator=rng, dtype=torch.double)
    u = 0.5 * torch.einsum("pja,pjb->pjab", first + second / r, first + r * second)
    m1 = torch.einsum("ps,pab->psab", h[:, 0], u.sum(1))
    m2 = torch.einsum("pjs,pjab->psab", h, u)
    return MaskedMatrices(
        centers, m1.float(), m2.float(), (2**0.5 * first.sum(1)).float(), (2**0.5 * first.mT @ h).float()
    )


def _vectors(centers: Tensor, h: Tensor, rng: torch.Generator) -> MaskedVectors:
    """Return the vector variant's messages of neighbourhoods with rows ``h`` [P, b, F], the node itself first."""
    h = _unit(h)
    count, b, features = h.shape
    place = torch.rand(count, 2 * b, generator=rng).argsort(1).reshape(count, b, 2)
    u = torch.zeros(count, b, 2 * b, dtype=torch.double).scatter_(2, place, 1.0)
    project = u.mT @ u / 2
    away = torch.eye(2 * b, dtype=torch.double) - project
    masks = away @ torch.randn(count, 2 * b, 3 * features + 1, generator=rng, dtype=torch.double)
    mask1, mask2, mask3, mask5 = torch.split(masks, [features, features, features, 1], dim=2)
    m1 = mask1 + u.sum(1)[..., None] * h[:, :1]
    m2 = mask2 + u.mT @ h
    k3 = mask5.squeeze(2) + u.sum(1)
    return MaskedVectors(centers, m1.float(), m2.float(), (mask3 + u.mT @ h).float(), project.float(), k3.float())
