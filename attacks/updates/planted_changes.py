"""Self-test problems for attacks on changes of the input layer: models that change by known rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.adversary.planting import MemoryMessages
from fglaudit.adversary.uploads.held import sending_clients
from fglaudit.adversary.uploads.means import EVERYBODY
from fglaudit.attacks.updates.input_layer import input_changes, input_layer
from fglaudit.nn.weights import unflatten
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate
from fglaudit.structure import Models, Training
from fglaudit.view import View

_WORDS = 3


def planted_clients(view: View) -> Tensor:
    """Return the clients whose changes the observer sees [K]; ``EVERYBODY`` alone where it sees global models."""
    single = input_changes(view, 1)[0].client != EVERYBODY
    return sending_clients(view, ModelUpdate) if single else torch.tensor([EVERYBODY])


def separable_rows(view: View) -> int:
    """Return how many rows one round's change can show: a direction of the features, or of the layer's outputs, has to
    be left out, else every row lies in the span. A head of two classes shows one."""
    layer = input_layer(view)
    assert layer is not None
    return min(view.public.num_features, view.public.layout[layer.name][1]) - 1


def planted_rows(view: View, clients: int, rng: torch.Generator) -> Tensor:
    """Return two rows of every client [K, 2, F] that share a word, and have others of their own."""
    features = view.public.num_features
    half = features // 2
    own = min(_WORDS, max(1, half - 1))
    rows = torch.zeros(clients, 2, features)
    for place in range(clients):
        words = torch.randperm(features, generator=rng)
        rows[place, 0, words[:own]] = 1
        rows[place, 1, words[half : half + own]] = 1
        rows[place, :, words[-1]] = 1
    return rows


def planted_messages(view: View, rows: Tensor, rng: torch.Generator, rectified: Tensor | None = None) -> MemoryMessages:
    """Return one round in which the first layers of :func:`planted_clients` read ``rows`` [K, R, F]. Gradients at its
    outputs are drawn at random; the other layers stay as they are.

    Args:
        rectified: the model [D] that is sent, at whose negative outputs there are no gradients; None: one at random,
            and gradients everywhere.
    """
    public, clients = view.public, planted_clients(view)
    layer = input_layer(view)
    assert layer is not None
    name, start = layer
    size = sum(math.prod(shape) for shape in public.layout.values())
    model = 0.1 * torch.randn(size, generator=rng) if rectified is None else rectified
    change = torch.zeros(len(clients), size)
    outputs = torch.randn(len(clients), rows.shape[1], public.layout[name][1], generator=rng)
    if rectified is not None:
        outputs = outputs * (rows @ unflatten(model[None], public.layout)[name][:, start:] > 0)
    gradient = torch.einsum("krf,krh->kfh", rows, outputs)
    stated = public.structure.of(Training)
    left = (1 - stated.learning_rate * stated.weight_decay) ** stated.local_steps
    moved = unflatten(change, public.layout)[name]
    moved.copy_((left - 1) * unflatten(model[None], public.layout)[name])
    moved[:, start:] -= gradient
    return changed_models(view, clients, model, change)


def changed_models(view: View, clients: Tensor, model: Tensor, change: Tensor) -> MemoryMessages:
    """Return one round in which ``model`` [D] becomes ``model + change`` [K, D] at ``clients`` [K]; of ``EVERYBODY``,
    for all of them."""
    public = view.public
    single = int(clients[0].item()) != EVERYBODY
    receivers = clients if single else torch.arange(public.num_clients)
    server = torch.full_like(receivers, SERVER)
    first = MessageBatch(0, server, receivers, ModelUpdate(model.repeat(len(receivers), 1)))
    whole = public.structure.of(Models).upload == "weights" or not single
    value = model + change if whole else change
    if single:
        return MemoryMessages((first, MessageBatch(1, clients, server, ModelUpdate(value))))
    hidden = ModelUpdate.__name__ in public.sealed and public.structure.of(Models).upload == "changes"
    value = (change if hidden else value).repeat(len(receivers), 1)
    return MemoryMessages((first, MessageBatch(1, server, receivers, ModelUpdate(value))))
