"""Self-test problems for attacks on nFedGNN's latents: rows with so few entries that D latents determine them.

The users, shapes and known rows stay; first weights are drawn again and broadcast; nothing is dropped and nothing is
added. The rows of the others are drawn from the prior, with about one non-zero entry for every twelve latents.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.adversary.planting import MemoryMessages, without_known_rows
from fglaudit.attacks.latents.latent_rounds import unknown_users
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted
from fglaudit.payloads import SERVER, LatentGradients, Latents, MessageBatch, ModelUpdate
from fglaudit.rng import split
from fglaudit.structure import Training
from fglaudit.view import View

_LATENTS_PER_ENTRY = 12
_BLIND_DENSITY = 0.02
_NUMBERS_AT_ONCE = 1 << 24


def planted_sparse_rows(view: View, nodes: Tensor, entries: int, rng: torch.Generator) -> Tensor:
    """Return rows [U, F] with ``entries`` non-zero entries each, drawn from the prior.

    Real-valued entries are at least half the mean size of known ones.
    """
    prior = feature_prior(view, nodes)
    real = view.public.features is FeatureKind.REAL
    even = real or not prior.informed
    weight = torch.full(prior.mean.shape, _BLIND_DENSITY) if even else prior.mean.float()
    place = torch.multinomial(weight, min(entries, weight.shape[1]), generator=rng)
    if real:
        known = view.known_rows().x
        size = float(known[known != 0].abs().mean().item()) if bool((known != 0).any()) else 1.0
        value = size * (0.5 + torch.rand(place.shape, generator=rng))
    else:
        value = torch.full(place.shape, 1.0 if view.public.features is FeatureKind.BINARY else 1.0 / place.shape[1])
    return torch.zeros(weight.shape).scatter_(1, place, value)


def planted_first_weights(view: View, dimensions: int, rng: torch.Generator) -> tuple[Tensor, MessageBatch]:
    """Return fresh first weights [F, D] and the message that broadcasts them."""
    features, users = view.public.num_features, torch.arange(view.public.num_nodes)
    weights = (torch.rand(features, dimensions, generator=rng) * 2 - 1) * (6 / (features + dimensions)) ** 0.5
    everyone = weights.reshape(1, -1).expand(len(users), -1)
    return weights, MessageBatch(0, torch.full_like(users, SERVER), users, ModelUpdate(everyone))


def latent_width(view: View) -> int:
    """Return D, the number of latents of a user."""
    payload = next(iter(view.messages.of(Latents))).payload
    assert isinstance(payload, Latents)
    return payload.values.shape[1]


def plain_view(view: View, batches: tuple[MessageBatch, ...], **training: object) -> View:
    """Return ``view`` with other messages and without defense; ``training`` replaces what is stated of it."""
    public = dataclasses.replace(
        view.public,
        defense="none",
        defense_parameters={},
        noise={},
        structure=view.public.structure.replace(Training, **{"feature_dropout": 0.0, **training}),
        layout=view.public.layout or {"layers.0.weight": (view.public.num_features, latent_width(view))},
    )
    return dataclasses.replace(view, messages=MemoryMessages(batches), public=public)


def fitting_known_rows(view: View, entries: int, rng: torch.Generator) -> View:
    """Return ``view`` with auxiliary rows that fit the planted ones.

    There are none for discrete features, whose prior does not need them; real-valued ones are drawn alike.
    """
    auxiliary = view.auxiliary
    if view.public.features is not FeatureKind.REAL or len(auxiliary.nodes) == 0:
        return dataclasses.replace(view, auxiliary=without_known_rows(auxiliary))
    rows = planted_sparse_rows(view, auxiliary.nodes, entries, rng)
    return dataclasses.replace(view, auxiliary=dataclasses.replace(auxiliary, x=rows.to(auxiliary.x)))


def plant_latents(view: View, rng: torch.Generator) -> Planted:
    """Return the problem described in the module docstring, for attacks that read first latents."""
    rng = split(rng, "plant")
    nodes = unknown_users(view)
    dimensions = latent_width(view)
    entries = max(1, dimensions // _LATENTS_PER_ENTRY)
    rows = planted_sparse_rows(view, nodes, entries, rng)
    weights, broadcast = planted_first_weights(view, dimensions, rng)
    up = MessageBatch(1, nodes, torch.full_like(nodes, SERVER), Latents(rows @ weights))
    view = fitting_known_rows(plain_view(view, (broadcast, up)), entries, rng)
    return Planted(view, rows, nodes)


def plant_first_round(view: View, rng: torch.Generator, **training: object) -> Planted:
    """Return :func:`plant_latents` with gradients of zero returned: the answer lies in the first round."""
    planted = plant_latents(view, rng)
    up = next(iter(planted.view.messages.of(Latents)))
    assert isinstance(up.payload, Latents)
    down = MessageBatch(1, up.receivers, up.senders, LatentGradients(torch.zeros_like(up.payload.values)))
    batches = (*planted.view.messages.of(ModelUpdate), up, down)
    return dataclasses.replace(planted, view=plain_view(planted.view, batches, **training))


def plant_weight_updates(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for attacks on uploaded weights: one step of SGD under unit gradients, without decay."""
    rng = split(rng, "plant")
    nodes = unknown_users(view)
    rows = planted_sparse_rows(view, nodes, 3, rng)
    dimensions = latent_width(view)
    weights, broadcast = planted_first_weights(view, dimensions, rng)
    gradients = torch.randn(len(nodes), dimensions, generator=rng)
    server = torch.full_like(nodes, SERVER)
    batches = [broadcast, MessageBatch(1, nodes, server, Latents(rows @ weights))]
    batches.append(MessageBatch(1, server, nodes, LatentGradients(gradients)))
    for low in range(0, len(nodes), size := max(1, _NUMBERS_AT_ONCE // weights.numel())):
        part = slice(low, low + size)
        stepped = weights - rows[part, :, None] * gradients[part, None]
        batches.append(MessageBatch(1, nodes[part], server[part], ModelUpdate(stepped.flatten(1))))
    plain = plain_view(view, tuple(batches), optimizer="sgd", learning_rate=1.0, weight_decay=0.0)
    return Planted(fitting_known_rows(plain, 3, rng), rows, nodes)


def plant_updates(view: View, rng: torch.Generator, optimizer: str) -> Planted:
    """Return the problem for attacks on update dynamics: three steps under unit gradients, without decay.

    The answers are the norms that ``optimizer`` ("sgd": squared, "adam": L1) shows.
    """
    rng = split(rng, "plant")
    nodes = unknown_users(view)
    rows = planted_sparse_rows(view, nodes, 3, rng)
    dimensions = latent_width(view)
    bound = (6 / (view.public.num_features + dimensions)) ** 0.5
    value, _ = rows.abs().topk(3, dim=1)
    start = (torch.rand(len(nodes), dimensions, 3, generator=rng) * 2 - 1) * bound
    replay = Replay(UserOptimizer(optimizer == "adam", 1.0, 0.0), start)
    server = torch.full_like(nodes, SERVER)
    batches = []
    for number in range(1, 4):
        gradients = torch.randn(len(nodes), dimensions, generator=rng)
        batches.append(MessageBatch(number, nodes, server, Latents((replay.weights * value[:, None]).sum(-1))))
        batches.append(MessageBatch(number, server, nodes, LatentGradients(gradients)))
        replay.step(gradients[..., None] * value[:, None])
    settings = {"optimizer": optimizer, "learning_rate": 1.0, "weight_decay": 0.0, "participation": 1.0}
    norms = value.square().sum(1) if optimizer == "sgd" else value.sum(1)
    return Planted(plain_view(view, tuple(batches), **settings), norms, nodes)


def plant_neighbors(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for attacks on edges: pairs of users with one latent, and gradients that point to it."""
    rng = split(rng, "plant")
    everyone = torch.arange(view.public.num_nodes)
    order = torch.randperm(len(everyone), generator=rng)
    pairs = order[: len(everyone) // 2 * 2].view(-1, 2)
    latents = torch.randn(len(everyone), latent_width(view), generator=rng)
    latents[pairs[:, 1]] = latents[pairs[:, 0]]
    server = torch.full_like(everyone, SERVER)
    up = MessageBatch(1, everyone, server, Latents(latents))
    down = MessageBatch(1, server, everyone, LatentGradients(-latents))
    return Planted(plain_view(view, (up, down)), torch.ones(len(pairs)), pairs)


def plant_labels(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for attacks on labels: latents around one center per class, and no known edges."""
    rng = split(rng, "plant")
    everyone = torch.arange(view.public.num_nodes)
    classes = view.public.num_classes
    nodes, labels = view.known_rows().nodes, view.labels
    # No other class can be learned.
    learned = torch.unique(torch.cat([view.known_rows().y, labels.y]).clamp(min=0))
    y = learned[torch.randint(len(learned), everyone.shape, generator=rng)]
    for known in (view.known_rows(), labels):
        y[known.nodes] = known.y.clamp(min=0)
    centers = 10 * torch.randn(classes, latent_width(view), generator=rng)
    latents = centers[y] + torch.randn(len(y), centers.shape[1], generator=rng)
    up = MessageBatch(1, everyone, torch.full_like(everyone, SERVER), Latents(latents))
    plain = plain_view(view, (up,))
    asked = everyone[~torch.isin(everyone, torch.cat([nodes, labels.nodes]))]
    alone = tuple(
        dataclasses.replace(
            client,
            remote_nodes=client.remote_nodes[:0],
            remote_degrees=None if client.remote_degrees is None else client.remote_degrees[:0],
            boundary=client.boundary[:, :0],
        )
        for client in plain.own
    )
    return Planted(dataclasses.replace(plain, own=alone, topology=None), y[asked], asked)


def plant_shared_code(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for learned decoders: users have one of D kinds of rows, and the latent shows the kind."""
    rng = split(rng, "plant")
    everyone, dimensions = torch.arange(view.public.num_nodes), latent_width(view)
    known, asked = view.known_rows().nodes, unknown_users(view)
    kinds = min(dimensions, max(2, len(known) // 4))
    code = planted_sparse_rows(view, torch.full((kinds,), -1), 3, rng)
    kind = torch.randint(kinds, everyone.shape, generator=rng)
    kind[known] = torch.arange(len(known)) % kinds
    latents = torch.nn.functional.one_hot(kind, dimensions).float()
    up = MessageBatch(1, everyone, torch.full_like(everyone, SERVER), Latents(latents))
    auxiliary = dataclasses.replace(view.auxiliary, x=code[kind[view.auxiliary.nodes]])
    return Planted(dataclasses.replace(plain_view(view, (up,)), auxiliary=auxiliary), code[kind[asked]], asked)
