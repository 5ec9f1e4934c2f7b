"""Labels from latents: classes that nFedGNN's server infers for users whose labels it does not hold.

The server holds the labels of the training nodes (Algorithm 1) and sees all latents. It averages the latents of the
last rounds, or takes the first ones, which no label has moved yet: later ones of users who train follow their labels,
and say little of others where only labels that train are known. It spreads them over the edges that the observer
knows, and fits a ridge classifier to the labels it has. Label propagation from the same labels, which needs no messages
and is the control, is added in log odds: the advantage is what the latents add.

Which rounds are averaged (more under noise) and what the classifier's scores weigh is learned from left-out known
labels; where the latents predict nothing, label propagation alone remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import known_edges
from fglaudit.adversary.known_labels import known_labels
from fglaudit.adversary.modelled import about
from fglaudit.attacks.latents.label_guess import label_guess
from fglaudit.attacks.latents.latent_rounds import LatentRounds, latent_rounds, missing_latents
from fglaudit.attacks.latents.modelled_facts import alike_for_all
from fglaudit.attacks.latents.planting import plant_labels
from fglaudit.facts import Absent, Additive, Fact, Randomised
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import Latents, Payload
from fglaudit.view import View

_LATE = (0.1, 0.3, 1.0)
"""Shares of the rounds, the last ones, that are averaged."""
_HOPS = 2


@dataclass(frozen=True)
class LatentLabels(Attack):
    """Classify users by their latents."""

    name: ClassVar[str] = "latent-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents,)
    metric: ClassVar[str] = "label_accuracy"
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive, Randomised)
    quantity: ClassVar[str] = "labels"

    def models(self, fact: Fact) -> bool:
        """What is done to every user alike is learned with the classes, and left-out labels judge it."""
        return alike_for_all(fact, Latents) or (type(fact) is Absent and about(fact, Latents))

    def unsupported(self, view: View) -> str | None:
        if missing := missing_latents(view):
            return missing
        if len(torch.unique(known_labels(view)[0])) < 2:
            return "the observer knows no labels to learn from"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        everybody = torch.arange(view.public.num_nodes)
        first, rounds = latent_rounds(view, everybody, 1), latent_rounds(view, everybody)
        kinds = [(first, 1.0), *((rounds, late) for late in _LATE)]
        return label_guess(view, [_smoothed(view, *kind).to(device) for kind in kinds])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_labels(view, rng)


def _smoothed(view: View, rounds: LatentRounds, late: float) -> Tensor:
    """Return standardised mean latents of all nodes [N, D (1 + hops)], plain and spread over known edges, float64.

    Args:
        late: share of the rounds, each user's last ones, that are averaged.
    """
    value = rounds.last_means(late)[0].double()
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
