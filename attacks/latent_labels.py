"""Labels from latents: what the server of nFedGNN learns about the classes of users who told it none.

The server holds the labels of the training nodes (Algorithm 1) and sees all latents. It averages the latents of the last rounds, spreads
them over the edges that the observer knows, and fits a ridge classifier to the labels it has. Added in log odds is label propagation from
the same labels, which needs no messages and is the control: what the latents add is the advantage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks._latent_messages import latent_rounds, unknown_users
from fglaudit.attacks._latent_planting import plant_labels
from fglaudit.attacks._recorded_sums import known_edges
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import Latents, Payload
from fglaudit.quantities import quantity
from fglaudit.view import View

_LATE = 0.1
_HOPS = 2
_RIDGE = 1e-2
_SHARPNESS = 4.0
"""Scores of the ridge classifier (targets 0 and 1) become log odds at this scale."""


@dataclass(frozen=True)
class LatentLabels(Attack):
    """Classify users by their latents."""

    name: ClassVar[str] = "latent-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents,)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"

    def unsupported(self, view: View) -> str | None:
        if next(iter(view.messages.of(Latents)), None) is None:
            return "the observer saw no Latents"
        if len(view.labels.nodes) + len(view.known_rows().nodes) < 2:
            return "the observer knows no labels to learn from"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        known = view.known_rows()
        nodes, y = torch.cat([known.nodes, view.labels.nodes]), torch.cat([known.y, view.labels.y])
        nodes, y = nodes[y >= 0], y[y >= 0]
        classes = view.public.num_classes
        inputs = _smoothed(view).to(device)
        design = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
        train = design[nodes.to(device)]
        gram = train.mT @ train
        gram.diagonal().add_(_RIDGE * len(train))
        targets = torch.nn.functional.one_hot(y, classes).to(train)
        scores = design @ torch.linalg.solve(gram, train.mT @ targets)
        users = unknown_users(view)
        users = users[~torch.isin(users, nodes)]
        spread = quantity("labels").guess(view, users).estimate
        total = _SHARPNESS * scores[users.to(device)].cpu() + spread.clamp(min=1e-6).log()
        return Inference(type(self).quantity, users, total.softmax(1))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_labels(view, rng)


def _smoothed(view: View) -> Tensor:
    """Return standardised late latents of all nodes [N, D (1 + hops)], plain and spread over known edges, float64."""
    everyone = torch.arange(view.public.num_nodes)
    rounds = latent_rounds(view, everyone)
    last = max(1, round(_LATE * len(rounds.latents)))
    present = rounds.present[-last:, :, None].double()
    value = (rounds.latents[-last:].double() * present).sum(0) / present.sum(0).clamp(min=1)
    row, column = known_edges(view)
    row, column = row[row != column], column[row != column]
    degree = torch.bincount(row, minlength=len(value)).double()[:, None]
    columns = [value]
    for _ in range(_HOPS if len(row) else 0):
        value = (value + torch.zeros_like(value).index_add_(0, row, value[column])) / (degree + 1)
        columns.append(value)
    features = torch.cat(columns, 1)
    scaled: Tensor = (features - features.mean(0)) / features.std(0).clamp(min=1e-12)
    return scaled
