"""Self-tests: models that learned planted nodes by heart; for membership, twins with equal rows and other labels.

The protocol itself trains on the first twin of every pair, long enough to learn its label; the model then contradicts
the second one. Shadow models of the self-test train as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.planting import planted_graph
from fglaudit.attacks.models.shadow_federations import KnownGraph
from fglaudit.errors import FglauditError
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Planted
from fglaudit.payloads import ModelUpdate
from fglaudit.rng import split
from fglaudit.view import Auxiliary, View

_MOST_PAIRS = 12
_WORDS = 8
_CPU = torch.device("cpu")
LEARNED: dict[str, Any] = {
    "rounds": 30,
    "local_steps": 3,
    "optimizer": "adam",
    "learning_rate": 0.05,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "participation": 1.0,
    "smoothing_hops": 0,
}
"""Hyperparameters under which twins are learned by heart; those that the protocol lacks are left out."""


PLAIN_STEPS: dict[str, Any] = {
    **LEARNED,
    "rounds": 10,
    "local_steps": 1,
    "optimizer": "sgd",
    "learning_rate": 0.1,
}
"""The same for attacks that read uploads as plain steps of SGD."""
ADAM_STEPS: dict[str, Any] = {**PLAIN_STEPS, "optimizer": "adam", "learning_rate": 0.01}
"""Or as steps of Adam."""


def learned_view(
    view: View, graph: FederatedGraph, rng: torch.Generator, settings: Mapping[str, Any] = LEARNED
) -> View:
    """Return ``view``, which has no defense any more, with the models that the protocol sends on ``graph`` while it
    learns its training nodes by heart; its public training function learns as long.

    Args:
        settings: hyperparameters of the training.

    Raises:
        FglauditError: the view comes without the protocol.
    """
    public, rehearsal = view.public, view.public.rehearse
    if rehearsal is None:
        raise FglauditError(
            "a self-test plants its leak through the messages of the view's protocol; this view has public.rehearse"
            " None; add what fglaudit.wire.rehearsal.rehearsal(protocol) returns to its public facts"
        )
    messages, structure = rehearsal(
        graph, view.observer, [ModelUpdate], settings=settings, rng=split(rng, "rehearsal"), device=_CPU
    )
    fit = None if public.fit is None else partial(public.fit, settings=settings)
    learned = dataclasses.replace(public, structure=structure, fit=fit, release=None, hooks=())
    return dataclasses.replace(view, messages=messages, public=learned)


def without_edges(view: View) -> tuple[View, Tensor]:
    """Return ``view`` on a graph without edges, and the nodes [M] that are not the observer's own."""
    bare, _ = planted_graph(view, torch.empty(2, 0, dtype=torch.long), inner_edges=False)
    return bare, (~own_nodes(view)).nonzero().squeeze(1)


def taught_view(
    view: View,
    graph: KnownGraph,
    trained: Tensor,
    rng: torch.Generator,
    settings: Mapping[str, Any] = LEARNED,
    *,
    knows: View | None = None,
    owner: Tensor | None = None,
) -> tuple[View, FederatedGraph]:
    """Return :func:`learned_view` of a federation over ``graph``, and the federation. In training are the nodes
    ``trained`` [M] and the observer's own training nodes.

    Args:
        knows: the view whose rows and edges the federation has, if it has more than ``view``.
        owner: client of every node [N]; None: it is drawn.
    """
    members = torch.zeros(view.public.num_nodes, dtype=torch.bool)
    members[trained] = True
    members[graph.own_training] = True
    whole = view if knows is None else knows
    owner = graph.owners(whole, split(rng, "owners")) if owner is None else owner
    federation = graph.held(whole, owner, members)
    return learned_view(view, federation, rng, settings), federation


def planted_twins(view: View, rng: torch.Generator, settings: Mapping[str, Any] = LEARNED) -> Planted:
    """Plant pairs of nodes with equal rows: the first is trained on as one class, the second is of the next one."""
    rng = split(rng, "plant")
    public = view.public
    bare, others = without_edges(view)
    twins = others[torch.randperm(len(others), generator=rng)]
    pairs = min(_MOST_PAIRS, len(twins) // 2, max(1, public.num_features // 2))
    first, second = twins[:pairs], twins[pairs : 2 * pairs]
    x = torch.zeros(public.num_nodes, public.num_features)
    words = min(_WORDS, max(1, public.num_features // 2))
    rows = torch.zeros(pairs, public.num_features)
    rows.scatter_(1, torch.rand(rows.shape, generator=rng).topk(words, dim=1).indices, 1.0)
    x[first] = x[second] = rows / words if public.features is FeatureKind.SCALED_BINARY else rows
    y = torch.full((public.num_nodes,), -1)
    y[first] = torch.arange(pairs) % public.num_classes
    y[second] = (y[first] + 1) % public.num_classes
    bare = dataclasses.replace(bare, auxiliary=Auxiliary(others, x[others], y[others]))
    graph = KnownGraph.of(bare, split(rng, "known graph"))
    planted, _ = taught_view(bare, graph, first, rng, settings)
    truth = torch.cat([torch.ones(pairs), torch.zeros(pairs)]).double()
    return Planted(planted, truth, torch.cat([first, second]))
