"""Local training of K models at once, and the accuracy of K models on their clients' test nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fglaudit.errors import require_known, require_least, require_shares
from fglaudit.federated.example_gradients import private_mean
from fglaudit.interfaces import LocalUpdate
from fglaudit.nn.gcn import Field, logits, loss, losses
from fglaudit.nn.weights import Layout, flatten, unflatten
from fglaudit.structure import Training

Optimizer = Literal["sgd", "adam"]
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
UNLIKE_CITATIONS: Mapping[str, Mapping[str, Any]] = {
    name: {"optimizer": "adam", "learning_rate": rate}
    for name, rate in {"chameleon": 0.01, "squirrel": 0.01, "photo": 0.003, "computers": 0.003}.items()
}
"""For ``on_datasets`` of convolutions: what trains them on graphs whose neighbours differ in class and on dense ones,
for which no paper has settings. Chosen on validation nodes (``python -m bench training-settings``)."""


@dataclass(frozen=True)
class LocalSettings:
    """How a client trains between two messages.

    Attributes:
        optimizer: "sgd" or "adam".
        weight_decay: L2 penalty ``weight_decay / 2 ||W||^2`` on every layer.
        dropout: share of hidden units dropped between layers.
    """

    optimizer: str
    learning_rate: float
    weight_decay: float
    dropout: float

    def __post_init__(self) -> None:
        require_known(self, optimizer=OPTIMIZERS)
        require_least(self, learning_rate=0, weight_decay=0)
        require_shares(self, "dropout")

    def training(self, local_steps: int, participation: float = 1.0, *, keep_optimizer: bool = False) -> Training:
        """Return what attacks may know of it."""
        return Training(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
            local_steps=local_steps,
            keep_optimizer=keep_optimizer,
            participation=participation,
        )


class LocalModels:
    """K models in training, one per client; client k's weights depend on client k's rows only."""

    def __init__(
        self,
        vectors: Tensor,
        layout: Layout,
        fields: Field | Sequence[Field],
        settings: LocalSettings,
        rng: torch.Generator,
        update: LocalUpdate | None = None,
    ) -> None:
        """Set up the models.

        Args:
            vectors: first models [K, D].
            layout: shape of each weight.
            fields: receptive field of the training nodes; or of some clients after others, who are then gone through
                one after another.
            rng: draws the dropout; on the device of ``vectors``.
            update: the defense's change of the gradients, from :meth:`fglaudit.interfaces.Channel.local_update`.
        """
        self._layout, self._settings, self._rng, self._update = layout, settings, rng, update
        self._fields = as_blocks(fields)
        if update is not None and len(self._fields) > 1:
            raise ValueError("the gradients of single examples are of all clients at once")
        self._weights = {name: w.clone().requires_grad_() for name, w in unflatten(vectors.detach(), layout).items()}
        rate, decay = settings.learning_rate, settings.weight_decay
        # The first optimizer of torch's own in a process imports its compiler: longer than many a training.
        self._adam = None
        if settings.optimizer == "adam":
            self._adam = torch.optim.Adam(self._weights.values(), lr=rate, weight_decay=decay)

    @torch.no_grad()
    def load(self, vectors: Tensor) -> None:
        """Continue from models [K, D]; the optimizer's state starts afresh, as for a client that was not sampled."""
        fresh = unflatten(vectors, {name: tuple(w.shape[1:]) for name, w in self._weights.items()})
        for name, weight in self._weights.items():
            weight.copy_(fresh[name])
        if self._adam is not None:
            self._adam.state.clear()

    def step(self, steps: int) -> None:
        """Take full-batch gradient steps."""
        for _ in range(steps):
            if self._update is None:
                for weight in self._weights.values():
                    weight.grad = None
                for field, weights in zip(self._fields, of_blocks(self._fields, self._weights), strict=True):
                    outputs = logits(field, weights, self._settings.dropout, self._rng)
                    loss(field, outputs).backward()  # type: ignore[no-untyped-call]
            else:
                gradient = private_mean(self._losses, self.vectors(), self._fields[0].mask, self._update)
                for name, part in unflatten(gradient, self._layout).items():
                    self._weights[name].grad = part
            if self._adam is None:
                self._descend()
            else:
                self._adam.step()

    @torch.no_grad()
    def _descend(self) -> None:
        """Take a step of stochastic gradient descent with the L2 penalty."""
        for weight in self._weights.values():
            gradient = weight.grad
            assert gradient is not None
            if self._settings.weight_decay:
                gradient.add_(weight, alpha=self._settings.weight_decay)
            weight.sub_(gradient, alpha=self._settings.learning_rate)

    def _losses(self, vectors: Tensor) -> Tensor:
        outputs = logits(self._fields[0], unflatten(vectors, self._layout), self._settings.dropout, self._rng)
        return losses(self._fields[0], outputs)

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights of all models [K, in, out], by name; they change with the next step."""
        return {name: weight.detach() for name, weight in self._weights.items()}

    def vectors(self) -> Tensor:
        """Return a copy of all models [K, D]."""
        return flatten(self.weights)


def as_blocks(fields: Field | Sequence[Field]) -> tuple[Field, ...]:
    """Return the receptive fields of all clients, in one or in several blocks of clients."""
    return (fields,) if isinstance(fields, Field) else tuple(fields)


def of_blocks(fields: Sequence[Field], weights: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor]]:
    """Yield for every block of clients its ``weights`` [K, ...]."""
    if len(fields) == 1:
        yield weights
        return
    first = 0
    for field in fields:
        last = first + len(field.mask)
        yield {name: weight[first:last] for name, weight in weights.items()}
        first = last


@torch.no_grad()
def hits(field: Field, weights: Mapping[str, Tensor]) -> Tensor:
    """Return which targets models classify correctly, as a padded grid [K, R_L]; ``weights`` [K, in, out] by name."""
    outputs = logits(field, weights)
    return (outputs.argmax(-1) == field.labels) & field.mask


def all_hits(fields: Sequence[Field], weights: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the :func:`hits` of the models of all blocks of clients, block by block."""
    return [hits(field, part) for field, part in zip(fields, of_blocks(fields, weights), strict=True)]


def accuracies(correct: Sequence[Tensor], counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return accuracy per round and client [rounds, K] (NaN without test nodes) and over all test nodes [rounds].

    Args:
        correct: correct answers per client [K], one entry per round.
        counts: test nodes per client [K].
    """
    hit = torch.stack(list(correct)).cpu().double()
    counts = counts.cpu().double()
    return hit / counts, hit.sum(1) / counts.sum()
