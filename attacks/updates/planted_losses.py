"""Self-test problems for attacks on classifiers over public codes, and which facts these attacks allow for."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.known_labels import known_labels
from fglaudit.adversary.modelled import about, known_error, on_gradients, sealed
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.code_gradients import code_inputs
from fglaudit.attacks.updates.planted_changes import changed_models, planted_clients
from fglaudit.facts import EDGES, Fact, is_built_in
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import ModelUpdate
from fglaudit.rng import split
from fglaudit.structure import Codes, Training
from fglaudit.view import View

_APART = 0.999
"""Largest cosine of the codes of two planted nodes."""
_ASKED = 64
"""Nodes that are drawn from at most."""


class PlantedLosses(NamedTuple):
    """A view of one round of planted training.

    Attributes:
        trained: nodes whose losses moved the models [S], and their ``labels`` [S].
        asked: these and nodes that trained nothing [2 S or fewer].
    """

    view: View
    trained: Tensor
    labels: Tensor
    asked: Tensor


def models_losses(fact: Fact) -> bool:
    """Whether attacks on these models allow for ``fact``: errors of uploads hide directions, which then do not
    count; clips and samples of losses scale gradients, whose rows stay what they are. Codes are propagated over the
    edges of the whole graph; features are not among them."""
    sent = known_error(fact, ModelUpdate)
    return sent or sealed(fact, ModelUpdate) or on_gradients(fact) or (fact.target != EDGES and _of_rows(fact))


def _of_rows(fact: Fact) -> bool:
    """Whether it is a built-in fact about something other than models."""
    return is_built_in(fact) and not about(fact, ModelUpdate)


def planted_losses(view: View, rng: torch.Generator) -> PlantedLosses:
    """Plant one round, in which two nodes that are no twins train at each client whose changes the observer sees."""
    rng = split(rng, "plant")
    clients, classes, known = planted_clients(view), view.public.num_classes, code_inputs(view, torch.device("cpu"))
    apart = _apart(view, known, rng)
    each = max(1, min(2, classes - 1, len(apart) // (2 * len(clients))))
    trained = apart[: each * len(clients)]
    labels = torch.randint(classes, (len(trained),), generator=rng)
    predicted = torch.rand(len(trained), classes, generator=rng, dtype=torch.double) + 0.1
    moved = predicted / predicted.sum(1, keepdim=True) - one_hot(labels, classes)
    name = next(iter(view.public.layout))
    size = sum(math.prod(part) for part in view.public.layout.values())
    model = 0.1 * torch.randn(size, generator=rng)
    stated, codes = view.public.structure.of(Training), view.public.structure.of(Codes)
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    change = torch.zeros(len(clients), size)
    weights = unflatten(change, view.public.layout)[name]
    weights.copy_((left - 1) * unflatten(model[None], view.public.layout)[name])
    gradient = torch.einsum(
        "krd,krc->kdc", known[trained].view(len(clients), -1, known.shape[1]), moved.view(len(clients), -1, classes)
    )
    weights[:, codes.inputs_from : codes.inputs_from + known.shape[1]] -= gradient.float()
    messages = changed_models(view, clients, model, change)
    return PlantedLosses(without_defense(view, messages), trained, labels, apart[: 2 * len(trained)])


def _apart(view: View, known: Tensor, rng: torch.Generator) -> Tensor:
    """Return nodes of others in random order, at most :data:`_ASKED`, none with the codes of another."""
    others = (~own_nodes(view)).nonzero().squeeze(1)
    unlabelled = others[~torch.isin(others, known_labels(view)[0])]
    others = unlabelled if len(unlabelled) >= 2 else others
    some = others[torch.randperm(len(others), generator=rng)[:_ASKED]]
    unit = known / torch.linalg.vector_norm(known, dim=1, keepdim=True).clamp(min=1e-30)
    like = (unit[some] @ unit.T > _APART).sum(1) > 1
    return some[~like] if int((~like).sum()) >= 2 else some
