"""Replay of the users' optimizer: a weight is a known function of its first value and of gradients the server sent.

A user's gradient is ``x_f g + decay W`` for the weights of feature f (nFedGNN, Algorithm 1, lines 11 and 12), so every
weight has its own trajectory, independent of the others. ``Replay`` advances many weights of many users along the
recorded rounds.

Users compute in float32. Roundings that are the same for all weights (constants, Adam's bias corrections, of which ``1
- 0.999^t`` loses five digits) are repeated here: they would otherwise be the largest error of the replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.structure import Training
from fglaudit.view import View


def _single(value: float) -> float:
    """Return ``value`` as a float32 holds it."""
    return float(torch.tensor(value, dtype=torch.float32).item())


_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of its paper and of every library."""
_KEPT, _NEW_MEAN, _NEW_SQUARE = _single(_BETA_2), _single(1 - _BETA_1), _single(1 - _BETA_2)


@dataclass(frozen=True)
class UserOptimizer:
    """The public settings of the users' optimizer."""

    adam: bool
    learning_rate: float
    weight_decay: float

    @staticmethod
    def of(view: View) -> UserOptimizer:
        """Read what the protocol states of the users' training."""
        stated = view.public.structure.of(Training)
        return UserOptimizer(stated.optimizer == "adam", _single(stated.learning_rate), _single(stated.weight_decay))


def unknown_steps(view: View) -> str | None:
    """Return why it is not known how users step on their weights, or None."""
    stated = view.public.structure.get(Training)
    if stated is None:
        return Training.missing()
    plain = stated.momentum == stated.proximal == 0 and stated.local_steps == 1
    if stated.optimizer not in ("adam", "sgd") or not plain:
        return (
            "users are followed through one plain step of SGD or Adam a round; these take other steps: not modelled,"
            " and no sign of protection"
        )
    return stated.unusual_adam()


def first_adam_step(gradient: Tensor, corrected: bool) -> Tensor:
    """Return Adam's first direction for a ``gradient`` of any shape.

    Args:
        corrected: whether float32 bias corrections were applied, rather than ``g / (|g| + eps)`` taken as it is.
    """
    if not corrected:
        return gradient / (gradient.abs() + _EPSILON)
    one = torch.ones((), dtype=torch.float32, device=gradient.device)
    mean = _NEW_MEAN * gradient / (1 - _BETA_1**one).to(gradient)
    root = _NEW_SQUARE**0.5 * gradient.abs() / (1 - _BETA_2**one).sqrt().to(gradient)
    direction: Tensor = mean / (root + _EPSILON)
    return direction


class Replay:
    """Trajectories of weights of U users; the state belongs to this object.

    Args:
        weights: first values, any shape with a leading axis of U (broadcast over users if that axis has length 1).
    """

    def __init__(self, optimizer: UserOptimizer, weights: Tensor) -> None:
        self.weights = weights.clone()
        self._optimizer = optimizer
        self._steps = torch.zeros(len(weights), dtype=torch.float32, device=weights.device)
        if optimizer.adam:
            self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)

    def step(self, gradient: Tensor, active: Tensor | None = None) -> None:
        """Take one step.

        Args:
            gradient: of the loss by these weights without decay, broadcastable to their shape.
            active: which users take it [U]; None: all.
        """
        options = self._optimizer
        gradient = gradient + options.weight_decay * self.weights
        whole = active is None or bool(active.all())
        mask = torch.ones_like(self._steps) if active is None else active.to(self._steps)
        self._steps += mask
        shape = (-1,) + (1,) * (self.weights.dim() - 1)
        if options.adam:
            mean = self._mean.lerp(gradient, _NEW_MEAN)
            square = (_KEPT * self._square).addcmul_(gradient, gradient, value=_NEW_SQUARE)
            taken = self._steps.clamp(min=1)
            first = (1 - _BETA_1**taken).to(gradient).view(shape)
            second = (1 - _BETA_2**taken).sqrt().to(gradient).view(shape)
            change = (mean / first) / (square.sqrt() / second + _EPSILON)
            if whole:
                self._mean, self._square = mean, square
            else:
                moving = active.view(shape) if active is not None else torch.ones((), dtype=torch.bool)
                self._mean = torch.where(moving, mean, self._mean)
                self._square = torch.where(moving, square, self._square)
        else:
            change = gradient
        self.weights = self.weights - options.learning_rate * mask.to(change).view(shape) * change

    def adopt(self, place: tuple[Tensor, ...], other: Replay, source: tuple[Tensor, ...]) -> None:
        """Continue at ``place`` with weights and optimizer state of ``other`` at ``source`` (of as many steps)."""
        self.weights[place] = other.weights[source]
        if self._optimizer.adam:
            self._mean[place] = other._mean[source]
            self._square[place] = other._square[source]
