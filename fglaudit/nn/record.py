"""What a training run of node clients came to: accuracy after every round, and the model of the round that counts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Trained
from fglaudit.nn.node_clients import NodeClients
from fglaudit.nn.training import accuracies
from fglaudit.nn.weights import Layout, unflatten


class Record:
    """Follows accuracy and validation loss; nothing leaves the device until :meth:`trained`.

    Args:
        choice: "validation" keeps the model with the lowest validation loss, "last" the last one.
    """

    def __init__(self, data: NodeClients, layout: Layout, choice: str) -> None:
        self._data, self._layout, self._choice = data, layout, choice
        self._correct: list[Tensor] = []
        self._lowest = torch.tensor(float("inf"), device=data.x.device)
        self._round = torch.tensor(0, device=data.x.device)
        self._model: Tensor | None = None

    def add(self, logits: Tensor, model: Tensor) -> None:
        """Take in a round.

        Args:
            logits: of every sample [N, S, C].
            model: [1, D], or [N, D] where clients differ.
        """
        data = self._data
        self._correct.append(((logits.argmax(2) == data.y) & data.test).sum(1))
        losses = functional.cross_entropy(logits.transpose(1, 2), data.y.clamp(min=0), reduction="none")
        loss = (losses * data.val).sum() / data.val.sum().clamp(min=1)
        # Without validation samples the loss is always 0: then, and by choice, every round replaces the one before.
        better = (loss < self._lowest) if self._choice == "validation" else torch.ones_like(loss, dtype=torch.bool)
        better = better | ~data.val.any()
        self._lowest = torch.where(better, loss, self._lowest)
        self._round = torch.where(better, len(self._correct) - 1, self._round)
        self._model = model if self._model is None else torch.where(better, model, self._model)

    def trained(self) -> Trained:
        """Return the outcome.

        Raises:
            FglauditError: if the model is not finite.
        """
        assert self._model is not None
        if not bool(torch.isfinite(self._model).all()) or not bool(torch.isfinite(self._lowest)):
            raise FglauditError("training must end with finite weights; they overflowed; lower learning_rate")
        accuracy, accuracy_global = accuracies(self._correct, self._data.test.sum(1))
        weights = {name: weight.squeeze(0).cpu() for name, weight in unflatten(self._model, self._layout).items()}
        return Trained(accuracy, accuracy_global, weights, self._layout, int(self._round.item()))
