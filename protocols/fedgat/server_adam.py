"""The server steps on the mean of its clients' gradients, as FedGAT's authors' code does (``communication_grad``)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fglaudit.nn.batched_adam import BatchedAdam

ServerOptimizer = Literal["none", "adam"]


class ServerAdam:
    """One Adam over all rounds. Clients send the model after plain gradient steps, which says no more and no less than
    their gradients: the server knows the model that they began with.

    Args:
        model: the first one [D].
        moved: by how much a client's model moves per unit of gradient in a round: its learning rate times its steps.
        learning_rate: of the server.
    """

    def __init__(self, model: Tensor, moved: float, learning_rate: float) -> None:
        self._moved = moved
        self._model = {"model": model.clone().unsqueeze(0)}
        self._adam = BatchedAdam(self._model, learning_rate, 0.0)

    @torch.no_grad()
    def step(self, sent: Tensor, mean: Tensor) -> Tensor:
        """Return the next model [D], given the one that was ``sent`` and the mean of those that came back."""
        self._model["model"].copy_(sent.unsqueeze(0))
        self._adam.step({"model": ((sent - mean) / self._moved).unsqueeze(0)})
        return self._model["model"].squeeze(0).clone()
