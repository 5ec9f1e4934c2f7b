"""Labels by a model's predictions and by label propagation, multiplied as independent experts (Hinton 2002).

Models that trained for a few rounds are less sure than they could be, others surer. The power on a model's
probabilities is the one that suits known labels, a part of them left out at a time.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from fglaudit.adversary.known_labels import known_labels
from fglaudit.adversary.label_propagation import propagate_labels
from fglaudit.view import KnownLabels, View

_POWERS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_FEWEST = 20
"""Known labels from which on the power is chosen; with fewer it is 1."""
_PARTS = 5
_SURPRISE = math.log(1e-12)
"""Least log probability of a label: one that a model is very wrong about does not decide alone."""


def label_product(view: View, logits: Tensor, nodes: Tensor, power: float) -> Tensor:
    """Return class probabilities [n, C] of ``nodes`` [n] by known labels and by a model's ``logits`` [N, C]."""
    return (propagate_labels(view, nodes).log() + power * logits[nodes]).softmax(1)


def prediction_power(view: View, logits: Tensor, powers: tuple[float, ...] = _POWERS, parts: int = _PARTS) -> float:
    """Return the power on a model's probabilities under which known labels are likeliest, those of each part given the
    others; labels that the observer's own clients train on are not asked, since models have them by heart.

    Args:
        logits: [N, C].
        powers: that are tried.
        parts: of the known labels, each left out in turn.
    """
    nodes, y = known_labels(view)
    trained = [client.nodes[client.train] for client in view.own]
    asked = ~torch.isin(nodes, torch.cat([nodes[:0], *trained]))
    if int(asked.sum()) < _FEWEST:
        return 1.0
    part, tried = asked.cumsum(0) % parts, torch.tensor(powers, dtype=torch.double)
    likely = torch.zeros_like(tried)
    for number in range(parts):
        out = asked & (part == number)
        known = propagate_labels(only_labels(view, nodes[~out], y[~out]), nodes[out]).log()
        found = (known + tried.view(-1, 1, 1) * logits[nodes[out]]).log_softmax(2)  # [P, n, C]
        likely += found[:, torch.arange(len(known)), y[out]].clamp(min=_SURPRISE).sum(1)
    return powers[int(likely.argmax())]


def only_labels(view: View, nodes: Tensor, y: Tensor) -> View:
    """Return ``view`` with no other known label than ``y`` [K] of ``nodes`` [K]."""
    own = tuple(dataclasses.replace(client, y=torch.full_like(client.y, -1)) for client in view.own)
    auxiliary = dataclasses.replace(view.auxiliary, y=torch.full_like(view.auxiliary.y, -1))
    return dataclasses.replace(view, own=own, auxiliary=auxiliary, labels=KnownLabels(nodes, y))
