"""Weight replay: Adam with weight decay turns every round's latents into a new measurement of the same row.

nFedGNN (Algorithm 1) updates the users' weights with gradients that the server computed, so a server that knows the
first weights knows the trajectory of every weight under the hypothesis that its feature is present. The latents of each
round are sums of these known functions of the first weights over the features present: all rounds together are far more
equations than the first latents alone. How many more depends on the optimizer. Under SGD a weight moves by the same
amount whatever its value, and all later rounds add one number, the squared norm. Adam divides by the size of past
gradients; with weight decay (the paper uses 5e-4) that size depends on the weight, so that 200 rounds of 16 latents
determine several moments of the weights of the ones (:mod:`fglaudit.attacks.latents.weight_moments`), each a further
set of 16 random projections: the closer the returned gradients are to ``decay * W`` in size, the more. The number of
ones is known in any case. Message passing uses these measurements, and replaying the found features over all rounds
shows whether they are right.

Noise on the latents is averaged over the rounds and hides the higher moments first; clipped rounds are left out. For
binary rows; users who drop features have trajectories of their own and are read by ``masked-rounds``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import MARGIN_BITS, attempts, nearest_column
from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.message_passing import Measurements, bernoulli, message_passing
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.attacks.latents.latent_rounds import (
    LatentRounds,
    all_clipped,
    first_latents,
    initial_weights,
    latent_rounds,
    unknown_users,
)
from fglaudit.attacks.latents.modelled_facts import (
    after_first_models,
    clipped_latents,
    disturbed_latents,
    edges_changed,
    received_gradients,
)
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer, unknown_steps
from fglaudit.attacks.latents.planting import plant_latents
from fglaudit.attacks.latents.sparse_recovery import no_known_weights
from fglaudit.attacks.latents.weight_moments import WeightMoments, count_spread, legendre, weight_moments
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate, Payload
from fglaudit.structure import Training
from fglaudit.view import View

_USERS_AT_ONCE = 256
_ROUNDING = 2.0**-18
"""Largest error of a replayed latent, relative to the largest sum of absolute weights: rounding accumulates."""


@dataclass(frozen=True)
class RotatedProjections:
    """Measurements by Legendre polynomials of the first weights, combined along each user's own axes.

    Attributes:
        matrix: [D K, F].
        axes: [U, D, K, K].
    """

    matrix: Tensor
    axes: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the measurements [U, D K] of rows [U, F]."""
        moments = (x @ self.matrix.mT).reshape(-1, *self.axes.shape[1:3], 1)
        return (self.axes.mT @ moments).flatten(1)

    def backward(self, s: Tensor) -> Tensor:
        """Return the transpose's image [U, F] of ``s`` [U, D K]."""
        moments: Tensor = (self.axes @ s.reshape(-1, *self.axes.shape[1:3], 1)).flatten(1) @ self.matrix
        return moments

    @property
    def energy(self) -> float:
        """Mean square of an entry: the polynomials are orthonormal."""
        return 1.0


_LAST_MODEL = 1
"""First weights come in round 0; models of round 1 show that they are replaced."""


@dataclass(frozen=True)
class ReplayAttack(Attack):
    """Reads latents and gradients of many rounds, but of the models only the first."""

    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents, LatentGradients, ModelUpdate)
    metric: ClassVar[str] = "f1"

    @classmethod
    def last_round(cls, payload: type[Payload]) -> int | None:
        return _LAST_MODEL if payload is ModelUpdate else cls.first_rounds


@dataclass(frozen=True)
class WeightReplay(ReplayAttack):
    """Recover rows from the latents and gradients of all rounds.

    Attributes:
        degree: most moments per latent.
        sweeps: of message passing.
        restarts: further tries, from perturbed priors, for rows that do not repeat their latents.
    """

    name: ClassVar[str] = "weight-replay"
    least: ClassVar[Mapping[str, float]] = {"degree": 1, "sweeps": 1, "restarts": 0}

    degree: int = 8
    sweeps: int = 50
    restarts: int = 4

    def models(self, fact: Fact) -> bool:
        """Noise is part of the measurements, and rounds that may have been clipped are left out."""
        sent = disturbed_latents(fact) or clipped_latents(fact) or received_gradients(fact)
        return sent or after_first_models(fact) or edges_changed(fact)

    def unsupported(self, view: View) -> str | None:
        return no_replay(view) or self._no_common_trajectory(view) or all_clipped(view)

    @staticmethod
    def _no_common_trajectory(view: View) -> str | None:
        if view.public.structure.of(Training).feature_dropout > 0:
            return "users drop features, so that no two weights of one user move alike"
        if view.public.features is not FeatureKind.BINARY:
            return (
                "the replay needs binary rows, whose entries move their weights alike; these are"
                f" {view.public.features.value}"
            )
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        weights = initial_weights(view)
        assert weights is not None
        nodes = unknown_users(view)
        recorded = latent_rounds(view, nodes)
        chance = feature_prior(view, nodes)
        typical = chance.size if chance.informed else typical_ones(first_latents(view, nodes), weights, view)
        ones = chance.mean if chance.informed else torch.full_like(chance.mean, typical / view.public.num_features)
        odds = ones.float().clamp(1e-6, 1 - 1e-6).logit()
        parts = []
        for low in range(0, len(nodes), _USERS_AT_ONCE):
            users = slice(low, low + _USERS_AT_ONCE)
            part = recorded.of(users, device)
            parts.append(self._recover(view, part, weights.to(device), odds[users].to(device), typical, rng))
        rows, confidence, proven = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        return Reconstruction(rows, nodes, confidence, proven)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_latents(view, rng)

    def _recover(
        self, view: View, rounds: LatentRounds, weights: Tensor, odds: Tensor, typical: float, rng: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows [U, F], confidences [U] and proofs [U].

        Args:
            rounds: T rounds of U users.
            weights: first weights [F, D].
            odds: prior log odds of ones [U, F].
            typical: typical number of ones.
        """
        std = added_std(view, Latents, rounds.latents[0])
        optimizer = UserOptimizer.of(view)
        bound = float(weights.abs().max().item())
        moments = weight_moments(
            rounds,
            optimizer,
            bound,
            self.degree,
            typical,
            std,
            KnownClip.of(view, Latents),
            spread=count_spread((view.known_rows().x != 0).sum(1).double()),
        )
        polynomials = legendre(weights.T / bound, self.degree)[..., 1:]  # [D, F, K]
        matrix = polynomials.mT.flatten(0, 1).contiguous()
        fits = torch.zeros(len(odds), dtype=torch.bool, device=odds.device)
        chance = torch.empty_like(odds)
        for attempt, rest, prior in attempts(fits, odds, self.restarts if std == 0 else 0, rng):
            found = self._pass(moments.of(rest), matrix, prior)
            if not attempt:
                chance[rest] = found
            bits = found > 0.5
            good = _replays(bits, weights, rounds.at(rest), optimizer, std)
            chance[rest[good]] = bits[good].to(chance)
            fits[rest[good]] = True
        rest = (~fits).nonzero().squeeze(1)
        first = rounds.latents[0]
        if std == 0 and len(rest):
            columns = Measurements(weights.T.double())
            bits = nearest_column(columns, columns.matrix.square().sum(0), first[rest])
            good = _replays(bits > 0, weights, rounds.at(rest), optimizer, std)
            chance[rest[good]] = bits[good].to(chance)
            fits[rest[good]] = True
        rows = torch.where(fits[:, None], chance, best_f1_bits(chance))
        sure = torch.where(rows > 0, chance, 1 - chance).clamp(min=1e-12).log().sum(1).exp()
        return rows, torch.where(fits, 1.0, sure.clamp(max=0.99)), fits & _determined(moments, typical, odds.shape[1])

    def _pass(self, moments: WeightMoments, matrix: Tensor, odds: Tensor) -> Tensor:
        """Return posterior probabilities of ones [U, F] from measurements by ``matrix`` [D K, F]."""
        prior = odds.sigmoid()
        known = moments.count_std < 0.5
        count = torch.where(known, moments.count, torch.nan).to(odds)
        return message_passing(
            RotatedProjections(matrix, moments.axes.to(odds)),
            moments.values.flatten(1).to(odds),
            moments.variance.flatten(1).to(odds),
            (prior, prior * (1 - prior)),
            bernoulli(odds, count),
            sweeps=self.sweeps,
        ).mean


def typical_ones(latents: Tensor, weights: Tensor, view: View) -> float:
    """Return the number of ones implied by the mean square of first latents, for an observer without known rows."""
    square = latents.square().mean() - added_std(view, Latents, latents) ** 2
    return float((square / weights.square().mean()).clamp(1, weights.shape[0] / 2).item())


def no_replay(view: View) -> str | None:
    """Return why the users' optimizers cannot be replayed, or None."""
    missing = no_known_weights(view)
    if missing:
        return missing
    if next(iter(view.messages.of(LatentGradients)), None) is None:
        return "the observer saw no LatentGradients, and so cannot follow the users' weights"
    if any(batch.round > 0 for batch in view.messages.of(ModelUpdate)):
        return "users start every round from weights that the server sends, so that no weights of their own evolve"
    return unknown_steps(view)


def _replays(bits: Tensor, weights: Tensor, rounds: LatentRounds, optimizer: UserOptimizer, std: float) -> Tensor:
    """Return which rows repeat the latents of all rounds [U].

    Args:
        bits: the rows [U, F].
        weights: first weights [F, D].
        rounds: T rounds of U users.
        std: standard deviation of the noise on latents.
    """
    if std > 0:
        return torch.zeros(len(bits), dtype=torch.bool, device=bits.device)
    most = max(1, min(int(bits.sum(1).max().item()), 128))
    present, place = bits.to(torch.float32).topk(most, dim=1)
    use = present.double()[:, None]
    replay = Replay(optimizer, weights.double()[place].mT)  # [U, D, ones]
    good = (bits.sum(1) <= most) & bits.any(1)
    largest = torch.zeros_like(rounds.latents[0])
    for latent, gradient, active in zip(rounds.latents, rounds.gradients, rounds.present, strict=True):
        largest = torch.maximum(largest, (replay.weights.abs() * use).sum(-1))
        error = ((replay.weights * use).sum(-1) - latent).abs()
        good &= ~active | (error <= _ROUNDING * largest).all(1)
        replay.step(gradient[..., None], active)
    return good


def _determined(moments: WeightMoments, typical: float, features: int) -> Tensor:
    """Return for which users no other row with the same number of ones can be expected to fit [U].

    Their measurements carry more bits than there are such rows, with a margin of 40.
    """
    bits = (1 + typical / moments.variance).log2().sum((1, 2)) / 2
    count = moments.count.clamp(1, features - 1)
    rows = torch.lgamma(torch.tensor(features + 1.0)) - torch.lgamma(count + 1) - torch.lgamma(features - count + 1)
    return (bits > rows / math.log(2) + MARGIN_BITS) & (moments.count_std == 0)
