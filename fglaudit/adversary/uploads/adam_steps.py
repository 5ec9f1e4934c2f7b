"""Weights that a round of Adam moved by their gradients, told from those that weight decay alone moved.

A weight without a gradient follows weight decay along a path that the public settings give to the last bit, as long as
the optimizer starts afresh: Adam divides even the smallest gradient by its own size, so that decay moves such a weight
by a whole step, like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.uploads.held import encoding_error, model_noise_std
from fglaudit.adversary.uploads.means import ModelRound
from fglaudit.nn.batched_adam import BatchedAdam
from fglaudit.structure import Training
from fglaudit.view import View

CLEAR = 6.0
"""A weight left its path if it is this many standard deviations of errors away from it."""
_ROUNDING = 2.0**-24


def off_idle_path(view: View, models: ModelRound, weight: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Return by how much a layer's weights are off what decay alone makes of them, and the standard deviation of the
    errors of that, [K, ...] each.

    Args:
        weight, change: of the layer in ``models``, received and by how much it changed [K, ...], in float64.
    """
    stated = view.public.structure.of(Training)
    path = adam_path(weight, torch.zeros_like(weight), stated) - weight
    # Of the weights, and of the steps themselves.
    rounding = (
        encoding_error(view)
        + _ROUNDING * (torch.maximum(weight.abs(), (weight + change).abs()) + stated.learning_rate) * models.spread
    )
    error = (stated.local_steps * rounding.square() + model_noise_std(view, models) ** 2).sqrt()
    return change - path, error


def stepped(view: View, models: ModelRound, weight: Tensor, change: Tensor) -> Tensor:
    """Return by how much a layer's weights were stepped against their gradients [K, ...]; 0 where decay alone moved
    them, as far as errors of the models let that be seen.

    Args:
        weight, change: see :func:`off_idle_path`.
    """
    off, error = off_idle_path(view, models, weight.double(), change.double())
    stated = view.public.structure.of(Training)
    idle = (off.abs() <= CLEAR * error) & (CLEAR * error < stated.learning_rate * stated.local_steps)
    return torch.where(idle, torch.zeros_like(change), -change)


def adam_path(weight: Tensor, gradient: Tensor, stated: Training) -> Tensor:
    """Return ``weight`` [K, ...] after a round's steps of Adam with the same ``gradient`` [K, ...] of the loss."""
    moved = {"first": weight.clone()}
    adam = BatchedAdam(moved, stated.learning_rate, stated.weight_decay)
    for _ in range(stated.local_steps):
        adam.step({"first": gradient})
    return moved["first"]
