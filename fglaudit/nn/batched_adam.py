"""Adam (Kingma and Ba 2015) for K models in one tensor, where a step may update only some of the models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class BatchedAdam:
    """K independent Adams with L2 penalty ``weight_decay / 2 ||w||^2``, one per entry of the leading axis.

    Clients have different numbers of mini-batches: a client without further batches must keep its weights and moments,
    which ``torch.optim.Adam`` on the stacked weights cannot do.

    Args:
        weights: [K, ...] by name, updated in place.
    """

    def __init__(self, weights: Mapping[str, Tensor], learning_rate: float, weight_decay: float) -> None:
        self._weights, self._rate, self._decay = weights, learning_rate, weight_decay
        self.reset()

    def reset(self) -> None:
        """Forget all earlier steps."""
        first = next(iter(self._weights.values()))
        self._steps = torch.zeros(len(first), dtype=torch.float64, device=first.device)
        self._mean = {name: torch.zeros_like(w) for name, w in self._weights.items()}
        self._square = {name: torch.zeros_like(w) for name, w in self._weights.items()}
        # Fresh memory for intermediate results, step by step, would cost as much as the step.
        self._first, self._second = ({n: torch.empty_like(w) for n, w in self._weights.items()} for _ in range(2))

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], active: Tensor | None = None) -> None:
        """Take one step of the models where ``active`` [K] is true; None means all of them."""
        self._steps += 1 if active is None else active
        done = self._steps.clamp(min=1)
        size = self._rate / (1 - BETAS[0] ** done)
        correction = (1 - BETAS[1] ** done).sqrt()
        for name, weight in self._weights.items():
            shape = (-1, *[1] * (weight.dim() - 1))
            gradient = torch.add(gradients[name], weight, alpha=self._decay, out=self._first[name])
            mean, square = self._mean[name], self._square[name]
            if active is None:
                mean.lerp_(gradient, 1 - BETAS[0])
                square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
                change = size
            else:
                chosen = active.view(shape)
                mean.copy_(torch.where(chosen, mean.lerp(gradient, 1 - BETAS[0]), mean))
                square.copy_(torch.where(chosen, square * BETAS[1] + (1 - BETAS[1]) * gradient.square(), square))
                change = size * active
            scale = torch.sqrt(square, out=self._first[name]).div_(correction.to(weight).view(shape)).add_(EPSILON)
            weight.addcdiv_(torch.mul(mean, -change.to(weight).view(shape), out=self._second[name]), scale)
