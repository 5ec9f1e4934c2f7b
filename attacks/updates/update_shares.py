"""Shares of the classes among a client's training nodes, from the change of the last layer.

The last layer of a GCN without biases has the gradient ``g_c = sum_i h_i (p_ic - y_ic) / t`` over t training nodes with
propagated hidden units h_i >= 0, summed here over units. With A_c the hidden units of the nodes of class c together and
A those of all, a model that predicts 1/C for all gives ``A / C - A_c``: the share of class c is ``1/C - g_c / A``.

From an honest server only the first model predicts roughly alike, and A is not known. No class has less than nothing at
any unit, so a unit's A is at least C times its largest gradient. Where a client has all classes this says little; A,
a mean over training nodes, is alike at all clients: none is given less than their mean. A server that sends crafted
weights (:mod:`fglaudit.parties.crafted_weights`) makes predictions equal and learns A from rounds in which the first
class is certain: units without a say in the logits then show -A_c of the others. Which round is which is read off
the weights that were sent. Errors are left by sizes A_i that differ between nodes, so that a share is one of sizes, not
of heads.

A **GAT** averages, so that sizes are alike, but its units have either sign under honest weights: those are not read.
Crafted ones bring every hidden unit to ELU's floor, -1: ``g_c = share_c - 1/C`` at every unit, with nothing unknown.

The nearer the gradients are to what noise and rounding alone make of them, the more stands what is known beforehand.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_labels import shares_of_others
from fglaudit.adversary.modelled import (
    about,
    change_clip,
    fewer_edges,
    known_error,
    on_gradients,
    sealed,
)
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.held import (
    missing_uploads,
    model_noise_std,
    sending_clients,
    sent_models,
    unknown_changes,
)
from fglaudit.adversary.uploads.upload_planting import without_defense
from fglaudit.facts import Absent, Clipped, Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.rng import split
from fglaudit.structure import Models, Training
from fglaudit.view import View

ROUNDS = 8
_ROUNDING = 2.0**-24
"""Of a weight in float32, relative to it; a change is off by two of them."""
_FLOOR = -1e3
"""Largest first weight of a GAT whose hidden units count as brought to ELU's floor."""


@dataclass(frozen=True)
class LastLayer:
    """Which weights give the logits.

    Attributes:
        name: in the public layout.
        heads: of a GAT, averaged; 0 for a GCN.
    """

    name: str
    heads: int


@dataclass(frozen=True)
class Round:
    """One client's last layer in one round, weights summed over heads.

    Attributes:
        received, change: [H, C].
        variance: of the errors of an entry of ``change``, of a defense and of rounding.
    """

    received: Tensor
    change: Tensor
    variance: float


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
        sent = known_error(fact, ModelUpdate)
        gone = isinstance(fact, Absent) and about(fact, ModelUpdate)
        steps = on_gradients(fact) and not isinstance(fact, Clipped)
        return sent or clip or gone or steps or sealed(fact, ModelUpdate) or fewer_edges(fact)

    def unsupported(self, view: View) -> str | None:
        if (why := missing_uploads(view, ModelUpdate) or unknown_changes(view)) is not None:
            return why
        stated = view.public.structure.get(Training)
        if stated is None:
            return Training.missing()
        if stated.optimizer != "sgd" or stated.local_steps == 0:
            return "changes are read as so many steps of SGD; these clients step otherwise, or as often as they like"
        last = last_layer(view)
        if last is None:
            return "the last layer is read as one of a GCN or GAT: weights alone, one after the other; these are others"
        if last.heads and not any(bool(_floored(view, m.received).any()) for _, m in sent_models(view, ROUNDS)):
            return "hidden units of a GAT have either sign, but under crafted weights; none of these models is crafted"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        last = last_layer(view)
        assert last is not None
        found: dict[int, list[Round]] = {}
        for clients, models in sent_models(view, ROUNDS):
            received, change = _weights(view, last, models.received), _weights(view, last, models.change)
            largest = unflatten(models.received + models.change, view.public.layout)[last.name].abs().amax()
            rounding = 2 * _ROUNDING * models.spread * float(largest.item())
            variance = (model_noise_std(view, models) ** 2 + rounding**2) * max(1, last.heads)
            used = _floored(view, models.received) if last.heads else torch.ones(len(clients), dtype=torch.bool)
            for place, client in enumerate(clients.tolist()):
                rounds = [Round(received[place], change[place], variance)] if bool(used[place]) else []
                found.setdefault(client, []).extend(rounds)
        if not found:  # what the server returns is no mean of which one is left: messages of noise
            return Inference(type(self).quantity, *shares_of_others(view))
        clients = torch.tensor(sorted(found))
        seen = [found[k] for k in clients.tolist()]
        if last.heads:
            shares, trusted = (torch.stack(part) for part in zip(*(_floor_shares(view, r) for r in seen), strict=True))
        else:
            shares, trusted = _size_shares(view, seen)
        known = shares_of_others(view)[1][0]
        return Inference(type(self).quantity, clients, trusted * shares + (1 - trusted) * known)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant the answers to one round of equal predictions, every client without nodes of one class."""
        rng = split(rng, "plant")
        public, clients, last = view.public, sending_clients(view, ModelUpdate), last_layer(view)
        assert last is not None
        counts = torch.randint(1, 6, (len(clients), public.num_classes), generator=rng).double()
        counts[torch.arange(len(clients)), torch.randint(public.num_classes, (len(clients),), generator=rng)] = 0
        shares = counts / counts.sum(1, keepdim=True)
        stated = public.structure.of(Training)
        received = torch.zeros(len(clients), sum(math.prod(shape) for shape in public.layout.values()))
        if last.heads:
            next(iter(unflatten(received, public.layout).values())).fill_(10 * _FLOOR)
        change = torch.zeros_like(received)
        unit = -1 / last.heads if last.heads else 1
        gradient = unit * (1 / public.num_classes - shares).repeat(1, max(1, last.heads)).unsqueeze(1)
        unflatten(change, public.layout)[last.name].copy_(-stated.learning_rate * stated.local_steps * gradient)
        server = torch.full_like(clients, SERVER)
        sent = received + change if public.structure.of(Models).upload == "weights" else change
        batches = (
            MessageBatch(0, server, clients, ModelUpdate(received)),
            MessageBatch(1, clients, server, ModelUpdate(sent)),
        )
        return Planted(without_defense(view, MemoryMessages(batches)), shares, clients)


def last_layer(view: View) -> LastLayer | None:
    """Return the last of several layers of a GCN or a GAT, None where the model is something else."""
    public = view.public
    layout = list(public.layout.items())
    shapes = [shape for _, shape in layout]
    if len(shapes) < 2 or any(len(shape) != 2 for shape in shapes):
        return None
    if _chained(shapes, public.num_features, public.num_classes):
        return LastLayer(layout[-1][0], 0)
    # Layer by layer: weights [in, heads x out], then two attention vectors [heads, out].
    layers, own, other = shapes[0::3], shapes[1::3], shapes[2::3]
    if len(shapes) % 3 or own != other or [w[1] for w in layers] != [math.prod(a) for a in own] or len(layers) < 2:
        return None
    heads, classes = own[-1]
    if classes != public.num_classes or not _chained(layers, public.num_features, heads * classes):
        return None
    return LastLayer(layout[-3][0], heads)


def _chained(shapes: list[tuple[int, ...]], inputs: int, outputs: int) -> bool:
    follow = all(one[1] == other[0] for one, other in itertools.pairwise(shapes))
    return follow and shapes[0][0] == inputs and shapes[-1][1] == outputs


def _weights(view: View, last: LastLayer, vectors: Tensor) -> Tensor:
    """Return the last weights [K, H, C] of models [K, D], summed over heads."""
    weights = unflatten(vectors.double(), view.public.layout)[last.name]
    return weights.reshape(*weights.shape[:2], max(1, last.heads), -1).sum(2)


def _floored(view: View, vectors: Tensor) -> Tensor:
    """Return which models [K, D] of a GAT bring all hidden units to -1, and predict alike [K]."""
    weights = list(unflatten(vectors, view.public.layout).values())
    return (weights[0].flatten(1) <= _FLOOR).all(1) & (weights[-3].flatten(1) == 0).all(1)


def _trusted(levels: Tensor, variance: Tensor) -> Tensor:
    """Return which share of the squares of ``levels`` [..., C] is more than errors of ``variance`` [...] make of them
    [..., 1]: none, unless it is twice their spread more."""
    square = levels.square().mean(-1)
    beyond = square - variance
    return torch.where(beyond > 2 * variance * math.sqrt(2 / levels.shape[-1]), beyond / square, 0.0).unsqueeze(-1)


def _floor_shares(view: View, rounds: list[Round]) -> tuple[Tensor, Tensor]:
    """Return the shares [C] of one client of a GAT from changes of last weights that were 0, and how far they are to be
    trusted [1]."""
    stated, classes = view.public.structure.of(Training), view.public.num_classes
    if not rounds:
        return torch.full((classes,), 1 / classes, dtype=torch.double), torch.zeros(1, dtype=torch.double)
    changes = torch.stack([each.change for each in rounds])
    moved = changes.mean((0, 1))
    variance = torch.tensor(sum(each.variance for each in rounds) / len(rounds) ** 2 / changes.shape[1])
    shares = (1 / classes - moved / (stated.learning_rate * stated.local_steps)).clamp(min=0)
    return shares / shares.sum().clamp(min=1e-12), _trusted(moved, variance)


def _size_shares(view: View, rounds: list[list[Round]]) -> tuple[Tensor, Tensor]:
    """Return the shares [K, C] of the clients of a GCN, and how far they are to be trusted [K, 1]."""
    levels, sizes, crafted, variances = (
        torch.stack(part) for part in zip(*(_level(view, each) for each in rounds), strict=True)
    )
    alike = torch.where(crafted, sizes, torch.maximum(sizes, sizes.mean()))
    shares = (1 / view.public.num_classes - levels / alike.clamp(min=1e-300).unsqueeze(1)).clamp(min=0)
    return shares / shares.sum(1, keepdim=True), _trusted(levels, variances)


def _level(view: View, rounds: list[Round]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient [C] of one client's last layer under equal predictions, averaged over units, the size A that
    belongs to it, whether crafted rounds have shown A (else it is the least that it can be), and the variance of the
    gradient's errors."""
    stated, classes = view.public.structure.of(Training), view.public.num_classes
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    equal: list[Tensor] = []
    certain: list[Tensor] = []
    for each in rounds:
        silent = (each.received == 0).all(1)
        if bool(silent.any()):
            (equal if bool(silent.all()) else certain).append(-each.change[silent].mean(0))
    variance = torch.tensor(rounds[0].variance / len(rounds[0].change) / max(1, len(equal)), dtype=torch.double)
    if equal:
        level = torch.stack(equal).mean(0)
        least = classes * level.max()
    else:
        gradients = (left - 1) * rounds[0].received - rounds[0].change
        level, least = gradients.mean(0), classes * gradients.amax(1).mean()
    if not certain:
        return level, least, torch.tensor(False), variance
    known = torch.arange(classes) != 0
    apart = (level - torch.stack(certain).mean(0))[known].mean()
    return level, torch.maximum(least, classes * stated.local_steps * apart), torch.tensor(True), variance
