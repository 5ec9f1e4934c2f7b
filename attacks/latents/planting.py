"""Self-test problems for attacks on nFedGNN's and CNFGNN's latents: the first rounds of the protocol on made-up users.

The users, shapes and known rows stay; rows of others have few non-zero entries, drawn from the prior. The users form a
ring, and all of them are labelled, so that all get gradients. First weights are broadcast, nothing is dropped, nothing
decays and nothing is added.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch import Tensor

from fglaudit.adversary.planting import planted_federation, rehearsed, with_own_rows, without_known_rows
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.attacks.latents.latent_rounds import unknown_users
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate
from fglaudit.rng import split
from fglaudit.view import View

_LATENTS_PER_ENTRY = 12
_BLIND_DENSITY = 0.02
_ENTRIES = 3
_STEPS = 3
_PLAIN = {
    "initial_weights": "broadcast",
    "participation": 1.0,
    "evaluation": "training",
    "feature_dropout": 0.0,
    "weight_decay": 0.0,
}
_STEEP = {"loss": "sum", "dropout": 0.0, "learning_rate": 1.0}
"""Settings under which a step of SGD changes weights by about as much as they are."""


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


def fitting_known_rows(view: View, entries: int, rng: torch.Generator) -> View:
    """Return ``view`` with auxiliary rows that fit the planted ones.

    There are none for discrete features, whose prior does not need them; real-valued ones are drawn alike.
    """
    auxiliary = view.auxiliary
    if view.public.features is not FeatureKind.REAL or len(auxiliary.nodes) == 0:
        return dataclasses.replace(view, auxiliary=without_known_rows(auxiliary))
    rows = planted_sparse_rows(view, auxiliary.nodes, entries, rng)
    return dataclasses.replace(view, auxiliary=dataclasses.replace(auxiliary, x=rows.to(auxiliary.x)))


def _rehearsed(
    view: View,
    rng: torch.Generator,
    x: Tensor,
    *,
    edges: Tensor | None = None,
    y: Tensor | None = None,
    labelled: Tensor | None = None,
    rounds: int = 1,
    **settings: object,
) -> View:
    """Return what the observer has of the first ``rounds`` on users with rows ``x`` [N, F] and labels ``y`` [N].

    Only the ``labelled`` users (ids; None: all) have labels that the server trains on.
    """
    everyone = torch.arange(view.public.num_nodes)
    edges = torch.stack([everyone, everyone.roll(1)]) if edges is None else edges
    x = with_own_rows(view, x)
    graph = planted_federation(view, x, edges, everyone, split(rng, "graph"))
    graph = dataclasses.replace(graph, y=graph.y if y is None else y)
    if labelled is not None:
        graph = dataclasses.replace(graph, train=tuple(torch.isin(everyone, labelled)[:, None]))
    own = tuple(
        graph.client(c.client)
        if c.remote_degrees is not None
        else dataclasses.replace(graph.client(c.client), remote_degrees=None)
        for c in view.own
    )
    plain = dataclasses.replace(
        view,
        own=own,
        topology=None if view.topology is None else graph.edge_index,
        degrees=None if view.degrees is None else graph.degrees(),
        labels=dataclasses.replace(view.labels, y=graph.y[view.labels.nodes]),
        public=dataclasses.replace(view.public, sealed=(), facts=()),
    )
    payloads = (ModelUpdate, Latents, LatentGradients)
    return rehearsed(plain, graph, payloads, rng, rounds=rounds, **{**_PLAIN, **settings})


def _plant_rows(view: View, rng: torch.Generator, entries: int, **settings: object) -> Planted:
    """Return the problem of rows with ``entries`` non-zero entries each."""
    nodes = unknown_users(view)
    rows = planted_sparse_rows(view, nodes, entries, rng)
    view = fitting_known_rows(view, entries, rng)
    x = torch.zeros(view.public.num_nodes, view.public.num_features)
    x[nodes], x[view.auxiliary.nodes] = rows, view.auxiliary.x.to(x)
    return Planted(_rehearsed(view, rng, x, **settings), rows, nodes)  # type: ignore[arg-type]


def plant_latents(view: View, rng: torch.Generator, **settings: object) -> Planted:
    """Return the problem for attacks on first latents: rows with so few entries that D latents determine them."""
    return _plant_rows(view, split(rng, "plant"), max(1, _width(view) // _LATENTS_PER_ENTRY), **settings)


def _width(view: View) -> int:
    """Return D, the number of latents of a user."""
    return next(iter(next(iter(view.messages.of(Latents))).payload.tensors().values())).shape[1]


def plant_weight_updates(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for attacks on uploaded weights: one step of SGD."""
    return _of_steppers(_plant_rows(view, split(rng, "plant"), _ENTRIES, optimizer="sgd", **_STEEP), 1)


def _of_steppers(planted: Planted, rounds: int) -> Planted:
    """Return ``planted``, asked of users alone who got a gradient in the first ``rounds``: others, at whom all units of
    the server's network are off, take no step that could show a row. Of all, where nobody got one."""
    moved = torch.zeros(planted.view.public.num_nodes, dtype=torch.bool)
    for batch, payload in itertools.islice(planted.view.sent(LatentGradients), rounds):
        moved[batch.receivers[(payload.values != 0).any(1)]] = True
    asked = moved[planted.nodes]
    if not bool(asked.any()):
        return planted
    return dataclasses.replace(planted, rows=planted.rows[asked], nodes=planted.nodes[asked])


def plant_updates(view: View, rng: torch.Generator, optimizer: str) -> Planted:
    """Return the problem for attacks on update dynamics: three steps.

    The answers are the norms that ``optimizer`` ("sgd": squared, "adam": L1) shows.
    """
    steep = {**_STEEP, "smoothness": 0.0, "server_learning_rate": 0.0}
    planted = _plant_rows(view, split(rng, "plant"), _ENTRIES, optimizer=optimizer, rounds=_STEPS, **steep)
    planted = _of_steppers(planted, _STEPS - 1)  # the last one shows in no latent
    norms = planted.rows.square().sum(1) if optimizer == "sgd" else planted.rows.abs().sum(1)
    return Planted(dataclasses.replace(planted.view, auxiliary=view.auxiliary), norms, planted.nodes)


def plant_neighbors(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for attacks on edges: pairs of users with rows of cosine 0.9, joined by the only edges.

    Only a user without edges is labelled: the gradients of others are those of the regulariser, if there is one.
    """
    rng = split(rng, "plant")
    order = torch.randperm(view.public.num_nodes, generator=rng)
    pairs = order[1 + (len(order) + 1) % 2 :].view(-1, 2)
    x = torch.randn(len(order), view.public.num_features, generator=rng)
    x[pairs[:, 1]] = 0.9 * x[pairs[:, 0]] + 0.19**0.5 * x[pairs[:, 1]]
    planted = _rehearsed(view, rng, x, edges=pairs.T, labelled=order[:1])
    return Planted(planted, torch.ones(len(pairs)), pairs)


def plant_labels(view: View, rng: torch.Generator, **settings: object) -> Planted:
    """Return the problem for attacks on labels: all users of a class have one row, and no edges are known.

    Args:
        settings: of the protocol.
    """
    rng = split(rng, "plant")
    known, labels = view.known_rows(), view.labels
    # No other class can be learned.
    learned = torch.unique(torch.cat([known.y, labels.y]).clamp(min=0))
    y = learned[torch.randint(len(learned), (view.public.num_nodes,), generator=rng)]
    for part in (known, labels):
        y[part.nodes] = part.y.clamp(min=0)
    rows = planted_sparse_rows(view, torch.full((view.public.num_classes,), -1), _ENTRIES, rng)
    for client in view.own:  # whose rows stay as they are
        rows[client.y.clamp(min=0)] = client.x.to(rows)
    alone = dataclasses.replace(view, topology=None)
    planted = _rehearsed(alone, rng, rows[y], y=y, edges=torch.empty(2, 0, dtype=torch.long), **settings)  # type: ignore[arg-type]
    asked = torch.arange(len(y))
    asked = asked[~torch.isin(asked, torch.cat([known.nodes, labels.nodes]))]
    return Planted(planted, y[asked], asked)


def plant_shared_code(view: View, rng: torch.Generator) -> Planted:
    """Return the problem for learned decoders: users have one of at most D kinds of rows."""
    rng = split(rng, "plant")
    known, asked = view.known_rows().nodes, unknown_users(view)
    kinds = min(_width(view), max(2, len(known) // 4))
    code = planted_sparse_rows(view, torch.full((kinds,), -1), _ENTRIES, rng)
    kind = torch.randint(kinds, (view.public.num_nodes,), generator=rng)
    kind[known] = torch.arange(len(known)) % kinds
    auxiliary = dataclasses.replace(view.auxiliary, x=code[kind[view.auxiliary.nodes]])
    planted = _rehearsed(dataclasses.replace(view, auxiliary=auxiliary), rng, code[kind])
    return Planted(planted, code[kind[asked]], asked)
