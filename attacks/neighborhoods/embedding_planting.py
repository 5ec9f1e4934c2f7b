"""Self-test problems for attacks on exchanged embeddings: few rows per embedding, under small random models."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.neighborhoods.planting import plant_masked_pairs
from fglaudit.interfaces import Planted
from fglaudit.nn.chebyshev import attention_series
from fglaudit.nn.gat import unit_ball
from fglaudit.payloads import SERVER, Embeddings, MaskedMatrices, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.structure import Attention
from fglaudit.view import View

_NUMBERS_PER_FEATURE = 2


def plant_lone_embeddings(view: View, rng: torch.Generator) -> Planted:
    """Return pairs of an own and a foreign node with the embeddings of the latter alone.

    The pairs are those of :func:`fglaudit.attacks.neighborhoods.planting.plant_masked_pairs`. There are as many rounds
    as give two numbers per feature. The weights stay as small as initial ones.
    """
    planted = plant_masked_pairs(view, rng)
    pairs = _pairs(planted.view)
    x = _rows(planted)
    batches = _training(view, pairs[1], x[pairs[1]], x[pairs[0]].unsqueeze(1), rng)
    return dataclasses.replace(planted, view=dataclasses.replace(planted.view, messages=MemoryMessages(batches)))


def plant_linked_embeddings(view: View, rng: torch.Generator) -> Planted:
    """Return the same with matrices, and with edges between every two foreign nodes: these edges are the answer."""
    planted = plant_masked_pairs(view, rng)
    pairs = _pairs(planted.view)
    pairs = pairs[:, : pairs.shape[1] // 2 * 2]
    partner = pairs[1].view(-1, 2).flip(1).flatten()
    x = _rows(planted)
    neighbors = torch.stack([x[pairs[0]], x[partner]], 1)
    batches = _training(view, pairs[1], x[pairs[1]], neighbors, rng)
    own = []
    for client in planted.view.own:
        more = (
            None if client.remote_degrees is None else client.remote_degrees + torch.isin(client.remote_nodes, pairs[1])
        )
        own.append(dataclasses.replace(client, remote_degrees=more))
    degrees = planted.view.degrees
    if degrees is not None:
        degrees = degrees.index_add(0, pairs[1], torch.ones_like(pairs[1]))
    masked = tuple(planted.view.messages.of(MaskedMatrices))
    messages = MemoryMessages((*masked, *batches))
    linked = dataclasses.replace(planted.view, messages=messages, own=tuple(own), degrees=degrees)
    edges = torch.stack([pairs[1], partner], 1)
    return Planted(linked, torch.ones(len(edges) // 2), edges[::2])


def _pairs(view: View) -> Tensor:
    """Return (own node, foreign node) of every planted cross-client edge [2, J]."""
    return torch.cat([torch.stack([c.nodes[c.boundary[0]], c.remote_nodes[c.boundary[1]]]) for c in view.own], 1)


def _rows(planted: Planted) -> Tensor:
    """Return the rows of all nodes as they enter messages [N, F]."""
    x = torch.zeros(planted.view.public.num_nodes, planted.rows.shape[1], dtype=torch.double)
    for client in planted.view.own:
        x[client.nodes] = unit_ball(client.x.double())
    x[planted.nodes] = unit_ball(planted.rows.double())
    return x


def _training(
    view: View, nodes: Tensor, own: Tensor, neighbors: Tensor, rng: torch.Generator
) -> tuple[MessageBatch, ...]:
    """Return models and the embeddings of ``nodes`` under them.

    Args:
        nodes: [J].
        own: their rows [J, F].
        neighbors: rows of their neighbours [J, m, F].
    """
    layout = view.public.layout
    features, width = layout["layers.0.weight"]
    receiver = torch.tensor([view.own[0].client])
    stranger = torch.tensor([min(set(range(view.public.num_clients)) - set(view.observer.clients))])
    draw = split(rng, "models")
    batches: list[MessageBatch] = []
    for round in range(math.ceil(_NUMBERS_PER_FEATURE * features / width)):
        vector = torch.randn(sum(math.prod(s) for s in layout.values()), generator=draw) * features**-0.5
        body = Embeddings(nodes, _embed(view, vector.double(), own, neighbors).float())
        batches.append(MessageBatch(round, torch.tensor([SERVER]), receiver, ModelUpdate(vector[None])))
        batches.append(MessageBatch(round, stranger, receiver, body, torch.tensor([0, len(nodes)])))
    return tuple(batches)


def _embed(view: View, vector: Tensor, own: Tensor, neighbors: Tensor) -> Tensor:
    """Return the first layer's output [J, D] under one model.

    Args:
        vector: the model [parameters].
        own: [J, F].
        neighbors: [J, m, F].
    """
    layout = view.public.layout
    parts = dict(zip(layout, torch.split(vector, [math.prod(s) for s in layout.values()]), strict=True))
    first, second = (
        parts[f"layers.0.attention_{name}"].view(layout["layers.0.attention_own"]) for name in ("own", "neighbor")
    )
    weight = parts["layers.0.weight"].view(own.shape[1], *first.shape)
    z = torch.einsum("jmf,fho->jmho", torch.cat([own.unsqueeze(1), neighbors], 1), weight)
    stated = view.public.structure.of(Attention)
    series = attention_series(stated.degree, stated.domain)
    e = series((z[:, :1] * first).sum(3) + (z * second).sum(3)).unsqueeze(3)
    return torch.nn.functional.elu(((e * z).sum(1) / e.sum(1)).flatten(1))
