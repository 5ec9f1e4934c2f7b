"""Labels from the gradients that the server of split learning returns (after BlindSage, arXiv 2308.02465).

The gradient of the loss by the latent of a labelled user without neighbours is ``(p - y) W'`` where its units are
active: with predictions p still alike, users of one class get gradients of one direction. Through the graph's two
propagations a user's gradient is that of the labelled users around it, whose classes are mostly its own. So a wire tap
that knows some users' labels classifies the others by the directions of their gradients, whether it reads a latent or
not. BlindSage matches gradients without a known label; classes would then have no names.

How many rounds are averaged, the first ones, is learned from left-out known labels. Label propagation from the known
labels, the control, is added in log odds. A regulariser between neighbours (nFedGNN's ``smoothness``)
adds differences of latents to every gradient, and a large one drowns the labels. Users see their own gradients alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglaudit.adversary.known_labels import known_labels
from fglaudit.attacks.latents.label_guess import label_guess
from fglaudit.attacks.latents.latent_rounds import latent_rounds, missing_latents
from fglaudit.attacks.latents.modelled_facts import alike_for_all
from fglaudit.attacks.latents.planting import plant_labels
from fglaudit.facts import Fact
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import SERVER, LatentGradients, Latents, Payload
from fglaudit.view import View

_ROUNDS = (1, 5, 15)
"""Numbers of rounds that are averaged."""


@dataclass(frozen=True)
class GradientLabels(Attack):
    """Classify users by the gradients that they are sent."""

    name: ClassVar[str] = "gradient-labels"
    consumes: ClassVar[tuple[type[Payload], ...]] = (LatentGradients, Latents)
    metric: ClassVar[str] = "label_accuracy"
    quantity: ClassVar[str] = "labels"
    first_rounds: ClassVar[int | None] = _ROUNDS[-1]

    def models(self, fact: Fact) -> bool:
        """What is done to every user alike is learned with the classes, and left-out labels judge it."""
        return alike_for_all(fact, LatentGradients, Latents)

    def unsupported(self, view: View) -> str | None:
        if SERVER in view.observer.parties:
            return "the server computes these gradients itself, from labels that it has"
        if next(iter(view.messages.of(LatentGradients)), None) is None:
            return "the observer saw no LatentGradients"
        if missing := missing_latents(view):
            return missing
        if len(torch.unique(known_labels(view)[0])) < 2:
            return "the observer knows no labels to learn from"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        rounds = latent_rounds(view, torch.arange(view.public.num_nodes), _ROUNDS[-1])
        directions = normalize(rounds.gradients.to(device).double(), dim=2)
        taken = rounds.present.to(device).cumsum(0)[..., None]  # users who are not sampled get no gradient
        return label_guess(view, [_standardised(_first_mean(directions, taken, most)) for most in _ROUNDS])

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        """Plant users without edges, all labelled, of whom those of a class have one row."""
        return plant_labels(view, rng, dropout=0.0)


def _first_mean(directions: Tensor, taken: Tensor, most: int) -> Tensor:
    """Return the mean [N, D] of every user's first ``most`` of ``directions`` [T, N, D].

    Args:
        taken: in how many rounds it took part up to each [T, N, 1]; it has no direction in the others.
    """
    return directions.where(taken <= most, 0.0).sum(0) / taken[-1].clamp(1, most)


def _standardised(values: Tensor) -> Tensor:
    """Return ``values`` [N, D] with columns of mean 0 and deviation 1."""
    return (values - values.mean(0)) / values.std(0).clamp(min=1e-12)
