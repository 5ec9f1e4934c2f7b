"""Self-test problems for attacks on exchanged embeddings: every embedding is that of a node whose only neighbour is the observer's."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from fglaudit.attacks._neighborhood_planting import plant_masked_pairs
from fglaudit.attacks._planting import MemoryMessages
from fglaudit.interfaces import Planted
from fglaudit.nn.chebyshev import attention_series
from fglaudit.nn.gat_plan import unit_ball
from fglaudit.payloads import SERVER, Embeddings, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View

_NUMBERS_PER_FEATURE = 2


def plant_lone_embeddings(view: View, rng: torch.Generator) -> Planted:
    """Return pairs of an own and a foreign node as :func:`plant_masked_pairs` makes them, with embeddings under random models.

    There are as many rounds as it takes for twice as many numbers as features. The weights stay as small as initial ones.
    """
    planted = plant_masked_pairs(view, rng)
    public, own = view.public, planted.view.own
    layout = dict(public.layout)
    features, width = layout["layers.0.weight"]
    rounds = math.ceil(_NUMBERS_PER_FEATURE * features / width)
    pairs = torch.cat([torch.stack([c.nodes[c.boundary[0]], c.remote_nodes[c.boundary[1]]]) for c in own], 1)
    x = torch.zeros(public.num_nodes, features, dtype=torch.double)
    for client in own:
        x[client.nodes] = unit_ball(client.x.double())
    x[planted.nodes] = unit_ball(planted.rows.double())
    receiver = torch.tensor([own[0].client])
    stranger = min(set(range(public.num_clients)) - set(view.observer.clients))
    draw, batches = split(rng, "models"), []
    for round in range(rounds):
        vector = torch.randn(sum(math.prod(s) for s in layout.values()), generator=draw) * features**-0.5
        values = _embed(view, vector.double(), x[pairs[1]], x[pairs[0]])
        batches.append(MessageBatch(round, torch.tensor([SERVER]), receiver, ModelUpdate(vector[None])))
        body = Embeddings(pairs[1], values.float())
        batches.append(MessageBatch(round, torch.tensor([stranger]), receiver, body, torch.tensor([0, pairs.shape[1]])))
    messages = MemoryMessages(tuple(batches))
    return dataclasses.replace(planted, view=dataclasses.replace(planted.view, messages=messages))


def _embed(view: View, vector: Tensor, own: Tensor, neighbor: Tensor) -> Tensor:
    """Return the first layer's output for nodes with rows ``own`` [J, F] and one neighbour each with rows ``neighbor``."""
    layout = view.public.layout
    parts = dict(zip(layout, torch.split(vector, [math.prod(s) for s in layout.values()]), strict=True))
    first, second = (parts[f"layers.0.attention_{name}"].view(layout["layers.0.attention_own"]) for name in ("own", "neighbor"))
    weight = parts["layers.0.weight"].view(own.shape[1], *first.shape)
    z, other = (torch.einsum("jf,fho->jho", rows, weight) for rows in (own, neighbor))
    hyper = view.public.hyperparameters
    series = attention_series(int(hyper["degree"]), float(hyper["domain"]))
    e, e_other = (series((z * first).sum(2) + (rows * second).sum(2))[..., None] for rows in (z, other))
    return torch.nn.functional.elu(((e * z + e_other * other) / (e + e_other)).flatten(1))
