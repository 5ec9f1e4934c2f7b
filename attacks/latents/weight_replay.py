"""Weight replay: Adam with weight decay turns every round's latents into a new measurement of the same row.

nFedGNN (Algorithm 1) updates the users' weights with gradients that the server computed, so a server that knows the
first weights knows where every weight would have gone if its feature were present. The latents of each round are sums
of these known functions of the first weights over the features present: all rounds together are far more equations than
the first latents alone. How many more depends on the optimizer. Under SGD a weight moves by the same amount whatever
its value, and all later rounds add one number, the squared norm. Adam divides by the size of past gradients; with
weight decay (the paper uses 5e-4) that size depends on the weight, so that 200 rounds of 16 latents determine several
moments of the weights behind the ones (:mod:`weight_moments`), each a further set of 16 random projections: the closer
the returned gradients are to ``decay * W`` in size, the more. The number of ones is known in any case. Message passing
takes it from there, and replaying the found features over all rounds shows whether they are right.

Noise on the latents is averaged over the rounds and hides the higher moments first; clipped rounds are left out. For
binary rows; users who drop features follow ways of their own and are read by ``masked-rounds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import nearest_column
from fglaudit.adversary.clipping import Clipping, added_std
from fglaudit.adversary.expected_f1 import best_f1_bits
from fglaudit.adversary.feature_prior import feature_prior
from fglaudit.adversary.message_passing import Measurements, bernoulli, message_passing
from fglaudit.attacks.latents.latent_rounds import (
    LatentRounds,
    all_cut_down,
    first_latents,
    initial_weights,
    latent_rounds,
    unknown_users,
)
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer
from fglaudit.attacks.latents.planting import plant_first_round
from fglaudit.attacks.latents.sparse_recovery import no_known_weights
from fglaudit.attacks.latents.weight_moments import WeightMoments, count_spread, legendre, weight_moments
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import LatentGradients, Latents, ModelUpdate, Payload
from fglaudit.view import View

_USERS_AT_ONCE = 256
_DISTURBANCE = 0.3
_ROUNDING = 2.0**-18
"""Largest error of a replayed latent, relative to the largest sum of absolute weights: rounding that adds up over
rounds."""
_SURELY = 40


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


LAST_MODEL = 1
"""First weights come in round 0; models of round 1 tell that they are replaced."""


@dataclass(frozen=True)
class WeightReplay(Attack):
    """Recover rows from the latents and gradients of all rounds.

    Attributes:
        degree: most moments per latent.
        sweeps: of message passing.
        restarts: further tries, from disturbed priors, for rows that do not repeat their latents.
    """

    name: ClassVar[str] = "weight-replay"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents, LatentGradients, ModelUpdate)
    metric: ClassVar[str] = "f1"

    degree: int = 8
    sweeps: int = 50
    restarts: int = 4

    @classmethod
    def last_round(cls, payload: type[Payload]) -> int | None:
        return LAST_MODEL if payload is ModelUpdate else cls.first_rounds

    def unsupported(self, view: View) -> str | None:
        return no_replay(view) or self._no_common_way(view) or all_cut_down(view)

    @staticmethod
    def _no_common_way(view: View) -> str | None:
        if view.public.hyperparameters.get("feature_dropout", 0.0) > 0:
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
        usual = chance.size if chance.informed else usual_ones(first_latents(view, nodes), weights, view)
        odds = (
            chance.mean if chance.informed else torch.full_like(chance.mean, usual / view.public.num_features)
        ).float()
        odds = odds.clamp(1e-6, 1 - 1e-6).logit()
        parts = []
        for low in range(0, len(nodes), _USERS_AT_ONCE):
            users = slice(low, low + _USERS_AT_ONCE)
            part = recorded.of(users, device)
            parts.append(self._recover(view, part, weights.to(device), odds[users].to(device), usual, rng))
        rows, confidence, proven = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        return Reconstruction(rows, nodes, confidence, proven)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_first_round(view, rng)

    def _recover(
        self, view: View, rounds: LatentRounds, weights: Tensor, odds: Tensor, usual: float, rng: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows [U, F], confidences [U] and proofs [U]."""
        std = added_std(view, Latents, rounds.latents[0])
        optimizer = UserOptimizer.of(view.public.hyperparameters)
        bound = float(weights.abs().max().item())
        moments = weight_moments(
            rounds,
            optimizer,
            bound,
            self.degree,
            usual,
            std,
            Clipping.of(view, Latents),
            spread=count_spread((view.known_rows().x != 0).sum(1).double()),
        )
        polynomials = legendre(weights.T / bound, self.degree)[..., 1:]  # [D, F, K]
        matrix = polynomials.mT.flatten(0, 1).contiguous()
        fits = torch.zeros(len(odds), dtype=torch.bool, device=odds.device)
        chance = torch.empty_like(odds)
        for attempt in range(1 + (self.restarts if std == 0 else 0)):
            rest = (~fits).nonzero().squeeze(1)
            if len(rest) == 0:
                break
            disturbed = odds[rest]
            if attempt:
                disturbed = disturbed + _DISTURBANCE * torch.randn(disturbed.shape, generator=rng).to(disturbed)
            found = self._pass(moments.of(rest), matrix, disturbed)
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
        return rows, torch.where(fits, 1.0, sure.clamp(max=0.99)), fits & _determined(moments, usual, odds.shape[1])

    def _pass(self, moments: WeightMoments, matrix: Tensor, odds: Tensor) -> Tensor:
        """Return posterior chances [U, F]."""
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


def usual_ones(latents: Tensor, weights: Tensor, view: View) -> float:
    """Return the number of ones that the mean square of first latents shows, for an observer without any known row."""
    square = latents.square().mean() - added_std(view, Latents, latents) ** 2
    return float((square / weights.square().mean()).clamp(1, weights.shape[0] / 2).item())


def no_replay(view: View) -> str | None:
    """Return why the users' optimizers cannot be followed, or None."""
    missing = no_known_weights(view)
    if missing:
        return missing
    if next(iter(view.messages.of(LatentGradients)), None) is None:
        return "the observer saw no LatentGradients, and so cannot follow the users' weights"
    if any(batch.round > 0 for batch in view.messages.of(ModelUpdate)):
        return "users start every round from weights that the server sends, so that no weights of their own evolve"
    if LatentGradients.__name__ in view.public.noise:
        return "users step with gradients that a defense changed on the way"
    return None


def _replays(bits: Tensor, weights: Tensor, rounds: LatentRounds, optimizer: UserOptimizer, std: float) -> Tensor:
    """Return which rows ``bits`` [U, F] repeat the latents of all rounds [U]."""
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


def _determined(moments: WeightMoments, usual: float, features: int) -> Tensor:
    """Return for which users no other row with the same number of ones can be expected to fit [U]: the measurements
    carry more bits than there are such rows, with a margin of 40."""
    bits = (1 + usual / moments.variance).log2().sum((1, 2)) / 2
    count = moments.count.clamp(1, features - 1)
    rows = torch.lgamma(torch.tensor(features + 1.0)) - torch.lgamma(count + 1) - torch.lgamma(features - count + 1)
    return (bits > rows / math.log(2) + _SURELY) & (moments.count_std == 0)
