"""The outcome of training node clients: accuracy and losses by round, and the model of the round that counts."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError, unknown
from fglaudit.federated.node_clients import NodeClients
from fglaudit.federated.training import accuracies
from fglaudit.interfaces import Trained
from fglaudit.nn.weights import Layout, unflatten

Choice = Literal["validation", "last"]
"""Which round of a training counts: the one with the lowest validation loss, or the last."""
CHOICES: tuple[Choice, ...] = get_args(Choice)


class Record:
    """Follows accuracy and losses; nothing leaves the device until :meth:`trained`.

    Losses are means of the cross-entropy over all training and all validation samples, under the model of the round.

    Args:
        choice: "validation" keeps the model with the lowest validation loss, "last" the last one.
        owner: client of every node [N] where a client may have several; None where node k is client k.
    """

    def __init__(self, data: NodeClients, layout: Layout, choice: str, owner: Tensor | None = None) -> None:
        if choice not in CHOICES:
            raise unknown("choice", choice, CHOICES)
        self._data, self._layout, self._choice = data, layout, choice
        self._owner = torch.arange(len(data.x), device=data.x.device) if owner is None else owner.to(data.x.device)
        self._clients = int(self._owner.max().item()) + 1
        self._correct: list[Tensor] = []
        self._losses: dict[str, list[Tensor]] = {"training_loss": [], "validation_loss": []}
        self._lowest = torch.tensor(float("inf"), device=data.x.device)
        self._round = torch.tensor(0, device=data.x.device)
        self._model: Tensor | None = None
        self._right = torch.zeros_like(data.test)

    def add(self, logits: Tensor, model: Tensor) -> None:
        """Add a round.

        Args:
            logits: of every sample [N, S, C].
            model: [1, D], or [N, D] where clients differ.
        """
        data = self._data
        right = (logits.argmax(2) == data.y) & data.test
        self._correct.append(self._per_client(right))
        losses = functional.cross_entropy(logits.transpose(1, 2), data.y.clamp(min=0), reduction="none")
        loss = _mean(losses, data.val)
        self._losses["training_loss"].append(_mean(losses, data.train))
        self._losses["validation_loss"].append(loss)
        # Without validation samples the loss is always 0: then, and by choice, every round replaces the one before.
        better = (loss < self._lowest) if self._choice == "validation" else torch.ones_like(loss, dtype=torch.bool)
        better = better | ~data.val.any()
        self._lowest = torch.where(better, loss, self._lowest)
        self._round = torch.where(better, len(self._correct) - 1, self._round)
        self._model = model if self._model is None else torch.where(better, model, self._model)
        self._right = torch.where(better, right, self._right)

    def _per_client(self, hit: Tensor) -> Tensor:
        """Return the number of hits [K] among samples [N, S]."""
        clients = torch.zeros(self._clients, dtype=torch.long, device=hit.device)
        return clients.index_add_(0, self._owner, hit.sum(1))

    def trained(self) -> Trained:
        """Return the outcome.

        Raises:
            FglauditError: if the model is not finite.
        """
        assert self._model is not None
        if not bool(torch.isfinite(self._model).all()) or not bool(torch.isfinite(self._lowest)):
            raise FglauditError(
                "training must end with finite weights; they overflowed; lower learning_rate, or give large features a"
                " common scale (features: standardised)"
            )
        accuracy, accuracy_global = accuracies(self._correct, self._per_client(self._data.test))
        weights = {name: weight.squeeze(0).cpu() for name, weight in unflatten(self._model, self._layout).items()}
        order = torch.argsort(self._owner, stable=True)
        right = self._right[order][self._data.test[order]].cpu()
        return Trained(
            accuracy,
            accuracy_global,
            weights,
            self._layout,
            int(self._round.item()),
            series=self._series(),
            right=right,
        )

    def _series(self) -> dict[str, Tensor]:
        """Return the losses by round [rounds]; none of samples that there are not, or that is not finite in a round."""
        there = {"training_loss": self._data.train, "validation_loss": self._data.val}
        found = {name: torch.stack(losses).cpu() for name, losses in self._losses.items() if bool(there[name].any())}
        return {name: losses for name, losses in found.items() if bool(torch.isfinite(losses).all())}


def _mean(losses: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the ``chosen`` losses [N, S]; 0 if there are none."""
    return (losses * chosen).sum() / chosen.sum().clamp(min=1)
