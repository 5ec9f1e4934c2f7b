"""Shares of the classes among a client's training nodes, from the change of the last layer.

The last layer of a GCN without biases has the gradient ``g_c = sum_i h_i (p_ic - y_ic) / t`` over t training nodes with
propagated hidden units h_i >= 0, summed here over units. With A_c the hidden units of the nodes of class c together and
A those of all, a model that predicts 1/C for all gives ``A / C - A_c``: the share of class c is ``1/C - g_c / A``.

From an honest server only the first model predicts roughly alike, and A is not known: it is taken so that the rarest
class has no node. A server that sends crafted weights (:mod:`fglaudit.parties.crafted_weights`) makes predictions equal
and learns A from rounds in which the first class is certain: units without a say in the logits then show -A_c of the
others. Which round is which is read off the weights that were sent. Errors are left by sizes A_i that differ between
nodes, so that a share is one of sizes, not of heads.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import (
    about,
    change_clip,
    degree_bound,
    dropped_edges,
    known_noise,
    on_gradients,
    sealed,
)
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.upload_planting import without_defense
from fglaudit.adversary.uploads import missing_uploads, sending_clients, sent_models, unknown_changes
from fglaudit.facts import Absent, Clipped, Fact, Rounded
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Training
from fglaudit.view import View

ROUNDS = 8


@dataclass(frozen=True)
class UpdateShares(Attack):
    """Infer how labels of training nodes are distributed, from steps of SGD on a last layer without biases."""

    name: ClassVar[str] = "update-shares"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "training-labels"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Errors with mean 0 are averaged over units; a clip of a whole change scales it, and a share is a ratio. A
        clip of single losses does not keep their ratio."""
        clip = change_clip(fact, ModelUpdate) and isinstance(fact, Clipped) and fact.norm != "elementwise"
        sent = known_noise(fact, ModelUpdate) or (isinstance(fact, Rounded) and about(fact, ModelUpdate))
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        steps = on_gradients(fact) and not isinstance(fact, Clipped)
        return sent or clip or gone or steps or sealed(fact, ModelUpdate) or dropped_edges(fact) or degree_bound(fact)

    def unsupported(self, view: View) -> str | None:
        if (why := missing_uploads(view, ModelUpdate) or unknown_changes(view)) is not None:
            return why
        stated = view.public.structure.get(Training)
        if stated is None:
            return Training.missing()
        if stated.optimizer != "sgd" or stated.local_steps == 0:
            return "changes are read as so many steps of SGD; these clients step otherwise, or as often as they like"
        if _last_layer(view) is None:
            return "the last layer is read as one of a GCN: weights alone, one layer after the other; these are others"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for clients, models in sent_models(view, ROUNDS):
            received, change = self._layers(view, models.received), self._layers(view, models.change)
            for place, client in enumerate(clients.tolist()):
                found.setdefault(client, []).append((received[place], change[place]))
        clients = torch.tensor(sorted(found))
        shares = torch.stack([_shares(view, found[k]) for k in clients.tolist()])
        return Inference(type(self).quantity, clients, shares)

    def _layers(self, view: View, vectors: Tensor) -> Tensor:
        name = _last_layer(view)
        assert name is not None
        return unflatten(vectors.double(), view.public.layout)[name]

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant the answers to one round of equal predictions, every client without nodes of one class."""
        rng = split(rng, "plant")
        public, clients = view.public, sending_clients(view, ModelUpdate)
        name = _last_layer(view)
        assert name is not None
        counts = torch.randint(1, 6, (len(clients), public.num_classes), generator=rng).double()
        counts[torch.arange(len(clients)), torch.randint(public.num_classes, (len(clients),), generator=rng)] = 0
        shares = counts / counts.sum(1, keepdim=True)
        stated = public.structure.of(Training)
        change = torch.zeros(len(clients), sum(math.prod(shape) for shape in public.layout.values()))
        gradient = (1 / public.num_classes - shares).unsqueeze(1).expand(-1, public.layout[name][0], -1)
        unflatten(change, public.layout)[name].copy_(-stated.learning_rate * stated.local_steps * gradient)
        server = torch.full_like(clients, SERVER)
        blank = torch.zeros_like(change)  # uploaded weights are then their change
        batches = (
            MessageBatch(0, server, clients, ModelUpdate(blank)),
            MessageBatch(1, clients, server, ModelUpdate(change)),
        )
        return Planted(without_defense(view, MemoryMessages(batches)), shares, clients)


def _last_layer(view: View) -> str | None:
    """Return the name of the last of several layers of a GCN, None where the model is something else."""
    shapes = list(view.public.layout.items())
    if len(shapes) < 2 or any(len(shape) != 2 for _, shape in shapes):
        return None
    chained = all(one[1][1] == other[1][0] for one, other in itertools.pairwise(shapes))
    fits = shapes[0][1][0] == view.public.num_features and shapes[-1][1][1] == view.public.num_classes
    return shapes[-1][0] if chained and fits else None


def _shares(view: View, rounds: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the shares [C] of one client from received last layers and their changes [H, C], round by round."""
    stated, classes = view.public.structure.of(Training), view.public.num_classes
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    equal: list[Tensor] = []
    certain: list[Tensor] = []
    for weight, change in rounds:
        silent = (weight == 0).all(1)
        if bool(silent.any()):
            (equal if bool(silent.all()) else certain).append(-change[silent].mean(0))
    if not equal:
        weight, change = rounds[0]
        equal = [-(change - (left - 1) * weight).mean(0)]
    level = torch.stack(equal).mean(0)
    size = classes * level.max()
    if certain:
        known = torch.arange(classes) != 0
        apart = (level - torch.stack(certain).mean(0))[known].mean()
        size = torch.maximum(size, classes * stated.local_steps * apart)
    if not bool(size > 0):
        return torch.full((classes,), 1 / classes, dtype=torch.double)
    shares = (1 / classes - level / size).clamp(min=0)
    return shares / shares.sum()
