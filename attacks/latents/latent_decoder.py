"""Learned decoder: rows predicted from latents by an observer who knows some users' rows, but no weights.

Where every user draws its first weights privately, ``W_i x_i`` is a random vector, and no decoder can turn one into
words: only its length shows the number of ones. Training changes that. The server's gradients and the regulariser
(nFedGNN, equations (6) and (7)) move the latents of a class and of neighbours together, so late latents show the topic
of a row, and with it its likely words. The decoder learns this from the auxiliary users: ridge regression from
standardised mean latents of the last rounds (and from the first ones, for the case that all users share unknown
weights) to the difference between their rows and the prior. The penalty and the number of late rounds averaged are
those that predict left-out users best. Where left-out users are predicted no better than by the prior, the prior is
returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.attacks.latents.latent_rounds import (
    LatentRounds,
    latent_rounds,
    missing_latents,
    senders,
    unknown_users,
)
from fglaudit.attacks.latents.modelled_facts import alike_for_all
from fglaudit.attacks.latents.planting import plant_shared_code
from fglaudit.facts import Absent, Additive, Fact, Randomised
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Latents, Payload
from fglaudit.view import View

_LATE = (0.1, 0.3, 1.0)
"""Shares of the rounds, the last ones, that are averaged: more where a defense adds noise."""
_PENALTIES = tuple(10.0**k for k in range(-6, 5))
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class LatentDecoder(Attack):
    """Predict rows from latents by regression on auxiliary users."""

    name: ClassVar[str] = "latent-decoder"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents,)
    metric: ClassVar[str] = "f1"
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = (Additive, Randomised)

    def models(self, fact: Fact) -> bool:
        """What is done to every user alike is learned with the map, and left-out users judge it."""
        return alike_for_all(fact, Latents) or (type(fact) is Absent and about(fact, Latents))

    def unsupported(self, view: View) -> str | None:
        if missing := missing_latents(view):
            return missing
        if len(_training_users(view)) < _FEWEST_ROWS:
            return (
                f"a decoder is learned from at least {_FEWEST_ROWS} users whose rows are known; set auxiliary, e.g. 0.1"
            )
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        nodes, trainers = unknown_users(view), _training_users(view)
        known = view.known_rows()
        x = known.x[torch.searchsorted(known.nodes, trainers)].double().to(device)
        scale = 1.0
        if view.public.features is not FeatureKind.REAL:
            x, scale = (x != 0).double(), feature_prior(view, nodes[:0]).level
        center = x.mean(0)
        rounds = latent_rounds(view, torch.cat([trainers, nodes]))
        best = float((x - center).square().sum().item())
        change = torch.zeros(len(nodes), x.shape[1], dtype=torch.double, device=device)
        for late in _LATE:
            inputs = _inputs(rounds, late).to(device)
            fitted = _fit(inputs[: len(trainers)], x - center, best)
            if fitted is not None:
                gain, best = fitted
                change = inputs[len(trainers) :] @ gain
        rows = feature_prior(view, nodes).mean.to(device) + change
        if view.public.features is not FeatureKind.REAL:
            chance = rows.clamp(1e-6, 1 - 1e-6)
            rows = best_f1_bits(chance) * scale
        return Reconstruction(
            rows.float().cpu(), nodes, torch.zeros(len(nodes)), torch.zeros(len(nodes), dtype=torch.bool)
        )

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_shared_code(view, rng)


def _training_users(view: View) -> Tensor:
    """Return the users whose rows the observer knows and whose latents it saw, ascending [A]."""
    nodes = view.known_rows().nodes
    return nodes[senders(view)[nodes]]


def _inputs(rounds: LatentRounds, late: float) -> Tensor:
    """Return standardised first and mean late latents [U, 2 D], float64."""
    last = max(1, round(late * len(rounds.latents)))
    columns = []
    for part in (slice(0, 1), slice(-last, None)):
        present = rounds.present[part, :, None].double()
        columns.append((rounds.latents[part].double() * present).sum(0) / present.sum(0).clamp(min=1))
    value = torch.cat(columns, 1)
    scaled: Tensor = (value - value.mean(0)) / value.std(0).clamp(min=1e-12)
    return scaled


def _fit(inputs: Tensor, targets: Tensor, best: float) -> tuple[Tensor, float] | None:
    """Return the ridge map [2 D, F] from ``inputs`` [A, 2 D] to ``targets`` [A, F] and its leave-one-out error.

    None where that error is not below ``best``.
    """
    left, value, right = torch.linalg.svd(inputs, full_matrices=False)
    chosen = None
    along = left.mT @ targets
    for penalty in _PENALTIES:
        shrink = value.square() / (value.square() + penalty * len(inputs))
        hat = (left.square() * shrink).sum(1, keepdim=True)
        left_out = (targets - left @ (shrink[:, None] * along)) / (1 - hat).clamp(min=1e-9)
        error = float(left_out.square().sum().item())
        if error < best:
            best, chosen = error, penalty
    if chosen is None:
        return None
    gain: Tensor = right.mT @ ((value / (value.square() + chosen * len(inputs)))[:, None] * along)
    return gain, best
