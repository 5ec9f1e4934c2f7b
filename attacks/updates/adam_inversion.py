"""Adam inversion: the words of the rows that a client's first layer read, from which weights its steps moved.

Adam hides how large a gradient's entries are, not which of them are zero. In a GCN the weight from a word to a hidden
unit has a gradient where a row with the word activates the unit. Where none does, it follows weight decay alone, along
a path that the public settings give to the last bit. That is a pattern of units for every word, over all rounds, and
rows are the patterns that are no union of others (:mod:`fglaudit.attacks.updates.unit_patterns`). Several local
steps leave this as it is; dropout between the layers helps, as it draws other units in every step.

What is found are the words of the rows, not their entries, and not whose rows they are among a client's nodes.

``python -m bench update-inversion`` measures it on Cora.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, fewer_edges, known_error, sealed
from fglaudit.adversary.uploads.adam_steps import CLEAR, adam_path, off_idle_path
from fglaudit.adversary.uploads.held import (
    check_rounds,
    missing_uploads,
    model_noise_std,
    sending_clients,
    sent_models,
    unknown_adam,
    unknown_changes,
)
from fglaudit.adversary.uploads.means import ModelRound
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.attacks.updates.input_layer import input_layer
from fglaudit.attacks.updates.planted_changes import changed_models, planted_rows
from fglaudit.attacks.updates.unit_patterns import words_of_rows
from fglaudit.facts import Absent, Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import ModelUpdate, NeighborSums, Payload
from fglaudit.rng import split
from fglaudit.structure import Convolutions, Training
from fglaudit.view import View

ROUNDS = 8


@dataclass(frozen=True)
class AdamInversion(Attack):
    """Find the words of the rows that clients' first layers read from steps of Adam.

    Attributes:
        rounds: how many are read, at most 8; of an optimizer that goes on from round to round, the first alone.
    """

    name: ClassVar[str] = "adam-inversion"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    computed_from: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"
    quantity: ClassVar[str] = "layer-words"
    first_rounds: ClassVar[int | None] = ROUNDS

    rounds: int = ROUNDS

    def __post_init__(self) -> None:
        check_rounds(self.rounds, ROUNDS)

    def models(self, fact: Fact) -> bool:
        """Errors of uploads hide small moves, which then do not count. Over which edges rows were summed is none of
        its concern. Noise on gradients moves every weight, which nothing here allows for."""
        if about(fact, NeighborSums):
            return sealed(fact, NeighborSums)
        sent = known_error(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        return sent or gone or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if view.public.features is FeatureKind.REAL:
            return "rows are told by which words they have; these features are real-valued"
        if (missing := view.public.structure.missing(Convolutions)) is not None:
            return missing
        if input_layer(view) is None:
            return "it is not stated which of the first weights of this protocol's models read the features"
        if (why := missing_uploads(view, ModelUpdate) or unknown_adam(view) or unknown_changes(view)) is not None:
            return why
        if next(iter(view.public.layout.values()))[1] < 2:
            return "a single hidden unit tells no rows apart"
        stated = view.public.structure.of(Training)
        if stated.feature_dropout or stated.proximal or stated.local_steps < 1:
            return "which weights are idle shows where clients take a stated number of plain steps on all features"
        _, first = next(sent_models(view, 1))
        if stated.weight_decay and model_noise_std(view, first) > 0:
            return "uploads have errors larger than what tells a step by weight decay alone from one by a gradient"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        most = 1 if view.public.structure.of(Training).keep_optimizer else self.rounds
        seen: dict[int, list[Tensor]] = {}
        for clients, models in sent_models(view, most):
            for client, moved in zip(clients.tolist(), moved_weights(view, models), strict=True):
                seen.setdefault(client, []).append(moved)
        subjects, rows = [torch.empty(0, 2, dtype=torch.long)], [torch.empty(0, view.public.num_features)]
        for client, rounds in sorted(seen.items()):
            found = words_of_rows(torch.cat(rounds, 1))
            order = torch.arange(len(found))
            subjects.append(torch.stack([torch.full_like(order, client), order], 1))
            rows.append(found.float())
        return Inference(type(self).quantity, torch.cat(subjects), torch.cat(rows))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant clients of two rows that share a word and have others of their own, in a round of Adam. Each activates
        every other unit of the first layer; the other layers stay as they are."""
        rng = split(rng, "plant")
        clients, layer, layout = sending_clients(view, ModelUpdate), input_layer(view), view.public.layout
        assert layer is not None
        rows, units = planted_rows(view, len(clients), rng), layout[layer.name][1]
        active = torch.arange(units) % 2 == torch.arange(2).unsqueeze(1)
        outputs = torch.randn(len(clients), 2, units, generator=rng) * active
        model = 0.1 * torch.randn(sum(math.prod(shape) for shape in layout.values()), generator=rng)
        sent = model.repeat(len(clients), 1)
        weight = unflatten(sent, layout)[layer.name][:, layer.start :]
        gradient = torch.einsum("krf,krh->kfh", rows, outputs).double()
        weight.copy_(adam_path(weight.double(), gradient, view.public.structure.of(Training)))
        messages = changed_models(view, clients, model, sent - model)
        subjects = torch.cartesian_prod(clients, torch.arange(2))
        return Planted(without_defense(view, messages), rows.flatten(0, 1), subjects)


def moved_weights(view: View, models: ModelRound) -> Tensor:
    """Return which weights of every word left the path of weight decay in clients' ``models`` of a round [K, F, H]."""
    layer = input_layer(view)
    assert layer is not None
    weight, change = (
        unflatten(part.double(), view.public.layout)[layer.name][:, layer.start :]
        for part in (models.received, models.change)
    )
    off, error = off_idle_path(view, models, weight, change)
    return off.abs() > CLEAR * error
