"""Update inversion: the rows that a client's first layer read, from the models that it uploads.

The columns of a change of the first layer's weights lie in the span of those rows
(:mod:`fglaudit.attacks.updates.input_layer`), and rows of words are sparse and non-negative: they are the edges of the
cone that the words' rows of the gradient span (:mod:`fglaudit.attacks.updates.nonnegative_rows`). Of rows that may be
negative those are found at which two units are active and no other row is
(:mod:`fglaudit.attacks.updates.repeated_rows`), such as a client's only one. That the gradient of
a GNN's first layer has low rank, so that its span can be tested for true rows, is GRAIN's observation (Drencheva et
al., ICLR 2025), which enumerates candidates; here none are listed, as a row of Cora has 2^1433 values.

What is found: for FedGCN the sums ``S_i``, for FedGAT the feature rows themselves, of a client's training nodes and the
neighbours in reach, up to a positive factor each. The factor cannot be told: ReLU is homogeneous, so that an input
twice as large, with half the weight in the layer above, leaves every update as it is.

What limits it is rank: H hidden units over T rounds show at most T H rows of a client. Rounds add up because a client's
rows stay and its gradients do not: no further assumption is made of them. Where the observer sees no single client's
upload (secure aggregation; a client among others), the changes of the global model hold all clients' rows, and rows are
found without the client that has them.

``python -m bench update-inversion`` measures it on Cora.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import (
    about,
    change_clip,
    fewer_edges,
    known_error,
    on_gradients,
    sealed,
)
from fglaudit.adversary.running.once_per_view import once_per_view
from fglaudit.adversary.uploads.held import unknown_changes
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.input_layer import input_changes, input_weights, unreadable_layer
from fglaudit.attacks.updates.nonnegative_rows import nonnegative_rows
from fglaudit.attacks.updates.planted_changes import (
    planted_clients,
    planted_messages,
    planted_rows,
    separable_rows,
)
from fglaudit.attacks.updates.repeated_rows import repeated_rows
from fglaudit.facts import Absent, Clipped, Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.view import View

ROUNDS = 8
"""How many rounds are read."""
_LEAST_UNITS = 3


@dataclass(frozen=True)
class _FoundRows:
    """Rows [S, F] and, of each, the client and its number among the client's [S, 2]."""

    subjects: Tensor
    rows: Tensor


@once_per_view
def _found_rows(view: View, rounds: int) -> _FoundRows:
    """Return what the first ``rounds`` show."""
    subjects, rows = [torch.empty(0, 2, dtype=torch.long)], [torch.empty(0, view.public.num_features)]
    for found in input_changes(view, rounds):
        each = nonnegative_rows(found.change, found.error).rows
        if view.public.features is FeatureKind.REAL and not len(each):
            weights = [input_weights(view, models.received) for models in found.rounds]
            each = repeated_rows(found.change, torch.cat(weights, 1), weights[0].shape[1], found.error)
        order = torch.arange(len(each))
        subjects.append(torch.stack([torch.full_like(order, found.client), order], 1))
        rows.append(each.float())
    return _FoundRows(torch.cat(subjects), torch.cat(rows))


@dataclass(frozen=True)
class UpdateInversion(Attack):
    """Rebuild the rows that clients' first layers read from model updates, up to a factor.

    Attributes:
        rounds: how many are read, at most 8.
    """

    name: ClassVar[str] = "update-inversion"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"
    quantity: ClassVar[str] = "layer-inputs"
    first_rounds: ClassVar[int | None] = ROUNDS
    least: ClassVar[Mapping[str, float]] = {"rounds": 1}

    rounds: int = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Errors of uploads and gradients hide directions, which are then not counted; clips and samples of losses or
        of whole changes scale gradients, and a span stays what it is. Rows must be as their owners have them. What is
        found are the rows that were read, over the edges that were trained with: no edge is assumed, so that those
        which were dropped before are none of its concern."""
        if about(fact, NeighborSums):
            return sealed(fact, NeighborSums)
        scaled = change_clip(fact, ModelUpdate) and isinstance(fact, Clipped) and fact.norm != "elementwise"
        sent = known_error(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        edges = fewer_edges(fact)
        return sent or scaled or gone or edges or sealed(fact, ModelUpdate) or on_gradients(fact)

    def unsupported(self, view: View) -> str | None:
        if (why := unreadable_layer(view) or unknown_changes(view)) is not None:
            return why
        if view.public.features is FeatureKind.REAL:
            matrices = [shape for shape in view.public.layout.values() if len(shape) == 2]
            if len(matrices) < 2 or matrices[0][1] < _LEAST_UNITS:
                return "real-valued rows are told by the units that are active, of which there are too few, or no layer"
        elif separable_rows(view) < 1:
            return "a single feature, or a layer of a single output, leaves no direction out: every row is in the span"
        return None if input_changes(view, 1) else "the observer sees no two models of which one follows the other"

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = _found_rows(view, min(self.rounds, ROUNDS))
        return Inference(type(self).quantity, found.subjects, found.rows)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients of two rows that share a word, and have others of their own, or of one where a round shows no
        more; for an observer of the global models alone, one client for all. The gradients at the first layer's outputs
        are drawn at random. Of real-valued rows a client has one."""
        rng = split(rng, "plant")
        clients, model = planted_clients(view), None
        rows = planted_rows(view, len(clients), rng)[:, : separable_rows(view)]
        if view.public.features is FeatureKind.REAL:
            model = 0.1 * torch.randn(sum(map(math.prod, view.public.layout.values())), generator=rng)
            rows = torch.randn(len(clients), 1, view.public.num_features, generator=rng)
            active = (rows @ input_weights(view, model[None]).float() > 0).double().mean(2, keepdim=True)
            rows = torch.where(active < 0.5, -rows, rows)
        messages = planted_messages(view, rows, rng, model)
        subjects = torch.cartesian_prod(clients, torch.arange(rows.shape[1]))
        return Planted(without_defense(view, messages), rows.flatten(0, 1), subjects)
