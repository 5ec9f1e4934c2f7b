"""The server steps on the mean of its clients' gradients, as FedGAT's authors' code does (``communication_grad``)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.nn.batched_adam import BatchedAdam

ServerOptimizer = Literal["none", "adam"]


def require_plain_steps(server: ServerOptimizer, learning_rate: float, clients: str) -> None:
    """Raise :class:`FglauditError` where the server steps with Adam, at its ``learning_rate``, and clients do not take
    plain gradient steps, or the rate is none."""
    if server == "adam" and (clients != "sgd" or not 0 < learning_rate < math.inf):
        raise FglauditError(
            "with server_optimizer: adam clients take plain gradient steps and the server has a learning rate above"
            f" 0; got optimizer {clients} and server_learning_rate {learning_rate:g}; use"
            " optimizer: sgd and for example 0.01"
        )


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
