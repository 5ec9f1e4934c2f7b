"""Shares of the classes among a client's training nodes, from steps of Adam on a last layer with biases.

The gradient of the last weight from unit h to class c is ``mean_i h_i (p_ic - y_ic)`` over training nodes. A first
model predicts about 1/C for all, so that its sign says whether the unit's total at nodes of class c is above or below
1/C of its total. Adam (Kingma and Ba 2015) takes steps of one size and keeps the sign. Units differ in the classes at
which they are large, so the share of the units that move up towards a class grows with the log of how frequent it is;
the bias, a single sign, says little more than which classes are frequent. A unit with a negative mean moves the other
way: units are weighted by the cosine of their moves with those of the biases. Where classes are nearly even, small
differences turn signs, and units and biases do not agree: the less they do, the less a move counts.

What is observed: who sees single uploads, or what is left of a mean, has this from the first round on. Neither rows nor
edges nor the rest of the network are needed. Later rounds average noise out; predictions are no longer alike in them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.adversary.known_labels import known_shares, shares_of_others
from fglaudit.adversary.modelled import (
    about,
    change_clip,
    fewer_edges,
    kept_columns,
    known_error,
    random_rows,
    row_clip,
    sealed,
)
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.held import (
    missing_uploads,
    model_noise_std,
    sending_clients,
    sent_models,
    unknown_adam,
    unknown_changes,
)
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import Absent, Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Training
from fglaudit.view import View

ROUNDS = 5
_LOG_SHARE = 2.0
"""Log of how frequent a class is towards which all units move up; chosen on Cora and block models, seeds 0 and 1."""


@dataclass(frozen=True)
class Moves:
    """How last layers moved, summed over rounds.

    Attributes:
        clients: [K].
        units: changes of the weights of H units to C classes [K, H, C].
        bias: changes of the biases [K, C].
        variance: of what a defense adds to one of them.
    """

    clients: Tensor
    units: Tensor
    bias: Tensor
    variance: float


@dataclass(frozen=True)
class AdamShares(Attack):
    """Infer how labels of training nodes are distributed, from the directions in which a last layer moves."""

    name: ClassVar[str] = "adam-shares"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    metric: ClassVar[str] = "overlap"
    quantity: ClassVar[str] = "training-labels"
    first_rounds: ClassVar[int | None] = ROUNDS

    def models(self, fact: Fact) -> bool:
        """Errors of uploads are averaged over units, a clip leaves directions. No row and no edge is read."""
        sent = known_error(fact, ModelUpdate)
        sent = sent or change_clip(fact, ModelUpdate) or sealed(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        rows = row_clip(fact) or kept_columns(fact) or random_rows(fact)
        return sent or gone or rows or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if _last_layer(view) is None:
            return "the last layer is read as weights and a bias per class; this protocol's layout has none"
        return missing_uploads(view, ModelUpdate) or unknown_changes(view) or unknown_adam(view)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = shares_from_moves(view)
        if found is None:  # what the server returns is no mean of which one is left: messages of noise
            found = shares_of_others(view)
        return Inference(type(self).quantity, *found)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant one round of steps that moves one class of every client up at all units, which have either sign."""
        rng, clients = split(rng, "plant"), sending_clients(view, ModelUpdate)
        classes = torch.randint(view.public.num_classes, (len(clients),), generator=rng)
        return Planted(*planted_steps(view, classes, rng), clients)


def planted_steps(view: View, frequent: Tensor, rng: torch.Generator) -> tuple[View, Tensor]:
    """Return a view of one round of steps that moves the class ``frequent`` [K] of every client that uploads up at all
    units, which have either sign; and the shares [K, C] that it tells."""
    public, clients, layer = view.public, sending_clients(view, ModelUpdate), _last_layer(view)
    assert layer is not None
    classes, step = public.num_classes, public.structure.of(Training).learning_rate
    up = 2 * one_hot(frequent, classes).float() - 1
    change = torch.zeros(len(clients), sum(math.prod(shape) for shape in public.layout.values()))
    weight, bias = (unflatten(change, public.layout)[name] for name in layer)
    times = weight.shape[2] // classes
    units, shares = planted_moves(up, weight.shape[1], step, rng)
    weight.copy_(units.repeat(1, 1, times))
    bias.copy_((step * up).repeat(1, times).view(bias.shape))
    server = torch.full_like(clients, SERVER)
    batches = (  # the received model is zeros: what it became is how it changed
        MessageBatch(0, server, clients, ModelUpdate(torch.zeros_like(change))),
        MessageBatch(1, clients, server, ModelUpdate(change)),
    )
    return without_defense(view, MemoryMessages(batches)), shares


def shares_from_moves(view: View) -> tuple[Tensor, Tensor] | None:
    """Return the clients [K] whose last layers were seen to move, and the shares [K, C] that the moves tell; None where
    there are none, or no last layer with biases."""
    moves = None if _last_layer(view) is None else _moves(view)
    return None if moves is None else (moves.clients, shares_of_steps(moves, known_shares(view)))


def planted_moves(up: Tensor, units: int, step: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one step of the last weights [K, H, C], units of either sign, towards classes for which ``up`` [K, C] is
    1, not -1; and the shares [K, C] that it tells."""
    sign = torch.rand(units, 1, generator=rng).sub(0.5).sign()
    return sign * step * up.unsqueeze(1), (_LOG_SHARE * up.double()).softmax(1)


def _last_layer(view: View) -> tuple[str, str] | None:
    """Return the names of the last layer's weights and biases, of one map, or of two whose outputs are added up (of a
    node and of its neighbours); None where the layout has no such pair."""
    layout, classes = list(view.public.layout.items()), view.public.num_classes
    for (weight, entries), (bias, out) in reversed(list(itertools.pairwise(layout))):
        biases = len(out) == 1 and len(entries) == 2 and out[0] == entries[1]  # a GAT's attention vectors are [1, C]
        if biases and out[0] in (classes, 2 * classes):
            return weight, bias
    return None


def _moves(view: View) -> Moves | None:
    """Return the moves of all clients that upload in the first rounds; None where there are none."""
    layer, classes, found = _last_layer(view), view.public.num_classes, dict[int, list[tuple[Tensor, Tensor]]]()
    assert layer is not None
    variance = 0.0
    for clients, models in sent_models(view, ROUNDS):
        weights, bias = (unflatten(models.change.double(), view.public.layout)[name] for name in layer)
        units = weights.reshape(len(clients), -1, classes)
        biases = bias.reshape(len(clients), -1, classes).sum(1)
        variance += model_noise_std(view, models) ** 2
        for place, client in enumerate(clients.tolist()):
            found.setdefault(client, []).append((units[place], biases[place]))
    if not found:
        return None
    several = [[torch.stack(part).sum(0) for part in zip(*found[k], strict=True)] for k in sorted(found)]
    units, biases = (torch.stack(part) for part in zip(*several, strict=True))
    return Moves(torch.tensor(sorted(found)), units, biases, variance)


def shares_of_steps(moves: Moves, known: Tensor) -> Tensor:
    """Return the shares [K, C]; the more a defense drowns the moves, the nearer to the ``known`` ones [C]."""
    length = moves.units.square().sum((0, 2)).sqrt() * moves.bias.norm()
    cosine = torch.einsum("khc,kc->h", moves.units, moves.bias) / length.clamp(min=1e-300)
    total = cosine.abs().sum().clamp(min=1e-300)
    mean = torch.einsum("h,khc->kc", cosine, moves.units) / total
    # All steps are of one size, whatever it is: that of the moves without what a defense adds to them.
    size = moves.units.square().mean() - moves.variance
    seen = size > 2 * moves.variance * math.sqrt(2 / moves.units.numel())  # twice what noise makes of it
    size, error = size * seen, moves.variance * cosine.square().sum() / total.square()
    trusted = size / (size + error).clamp(min=1e-300)
    # Noise makes cosines smaller too, by the ratio of the moves' size to theirs with it.
    agreed = cosine.abs().mean() * (1 + moves.variance / size.clamp(min=1e-300)).sqrt()
    up = trusted * mean / size.clamp(min=1e-300).sqrt()
    shares: Tensor = (_LOG_SHARE * agreed.clamp(max=1) * up + (1 - trusted) * known.log()).softmax(1)
    return shares
