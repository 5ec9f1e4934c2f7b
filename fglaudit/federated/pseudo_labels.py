"""Pseudo-labels (Lee, ICML 2013 workshop on challenges in representation learning): nodes without a label train towards
the class that a model trained before predicts for them.

Here these are validation nodes. Their own labels stay unused, for settings are chosen by them. Choose settings on
validation nodes that were left out of training: of those that were in it a model knows more than of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fglaudit.graph import ClientGraph

LEFT_OUT = (
    "pseudo_labels train on validation nodes' rows in some rounds alone, which the accountant of gradients does not "
    "know: what it states would not hold for these nodes; use pseudo_labels: false"
)
"""Why no noise on gradients can be calibrated."""


def remarks(clients: Sequence[ClientGraph]) -> tuple[str, ...]:
    """Return a note where no client that trains has validation nodes."""
    if any(bool(client.train.any() and client.val.any()) for client in clients):
        return ()
    return ("pseudo_labels changed nothing: no client has both training and validation nodes",)


def training(clients: Sequence[ClientGraph]) -> list[ClientGraph]:
    """Return ``clients`` whose validation nodes train too; those without a training node train as little as before."""
    return [
        replace(client, train=client.train | client.val) if bool(client.train.any()) else client for client in clients
    ]


def with_pseudo_labels(clients: Sequence[ClientGraph], predicted: Tensor) -> list[ClientGraph]:
    """Return them with the classes ``predicted`` [N] as the validation nodes' labels."""
    known = predicted.cpu()
    return [replace(one, y=one.y.where(~one.val, known[one.nodes])) for one in training(clients)]
