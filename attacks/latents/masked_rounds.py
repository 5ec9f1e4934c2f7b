"""Masked rounds: under dropout of features every round measures another, smaller part of the same row.

A nFedGNN user with feature dropout uploads ``W_i (m * x) / (1 - p)`` with a fresh mask m every round. Each round is a
measurement of fewer ones than the row has, so message passing (:mod:`fglaudit.attacks.latents.sparse_recovery`) finds
them more easily; what one round hides the next one shows, and a one stays hidden for T rounds with probability p^T. The
difficulty is that the weights move by masks that only the user knows. But a server that has found the kept ones of
round t knows their gradient, and that of all others is the weight decay alone, so it replays both
(:mod:`fglaudit.attacks.latents.optimizer_replay`): all features not seen yet share one trajectory, those seen have one
each. In later rounds least squares decide which of the seen ones were kept, and message passing searches for new ones
in the residual. A round that is not explained to rounding (under noise: to the noise) ends the replay of that user.

For binary rows and users who take part in every round. A feature that was never seen is absent with the probability
that the prior and the number of rounds give; hence no row is ever called proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import attempts, nearest_column
from fglaudit.adversary.clipping import added_std
from fglaudit.adversary.message_passing import bernoulli, message_passing
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
    disturbed_latents,
    edges_changed,
    received_gradients,
)
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer
from fglaudit.attacks.latents.planting import plant_latents
from fglaudit.attacks.latents.weight_replay import ReplayAttack, no_replay, typical_ones
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Planted, Reconstruction
from fglaudit.payloads import Latents
from fglaudit.structure import Training
from fglaudit.view import View

_USERS_AT_ONCE = 1024
_SLOTS = 64
"""Most ones of a row that are tracked."""
_ROUNDING = 2.0**-18
_NEVER = -30.0
_RIDGE = 1e-12


@dataclass(frozen=True)
class ProjectedMaps:
    """Measurements by weights that all users share, orthogonal to those of the features that a user is known to have.

    Attributes:
        common: [D, F].
        known: projector on the latents that known features span [U, D, D].
    """

    common: Tensor
    known: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return what is left of the latents [U, D] of rows [U, F]."""
        return self.rest(x @ self.common.mT)

    def backward(self, s: Tensor) -> Tensor:
        """Return the transpose's image [U, F] of ``s`` [U, D]."""
        return self.rest(s) @ self.common

    def rest(self, latents: Tensor) -> Tensor:
        """Return the part of ``latents`` [U, D] that known features cannot explain."""
        return latents - (self.known @ latents[..., None])[..., 0]

    def squares(self) -> Tensor:
        """Return the squared norms [U, F] of the columns after the projection."""
        spanned = ((self.known @ self.common) * self.common).sum(1)
        return self.common.square().sum(0) - spanned

    @property
    def energy(self) -> float:
        """Mean square of an entry after the projection."""
        spanned = self.known.diagonal(dim1=1, dim2=2).mean()
        return float((self.common.square().mean() * (1 - spanned)).item())


@dataclass(frozen=True)
class MaskedRounds(ReplayAttack):
    """Follow users through rounds with feature dropout and collect their ones.

    Attributes:
        sweeps: of message passing, per round.
        restarts: further tries, from perturbed priors, for rounds that were not explained.
    """

    name: ClassVar[str] = "masked-rounds"
    first_rounds: ClassVar[int | None] = 24
    least: ClassVar[Mapping[str, float]] = {"sweeps": 1, "restarts": 0}

    sweeps: int = 30
    restarts: int = 3

    def models(self, fact: Fact) -> bool:
        """Rounds are explained up to noise, and a clip ends the replay of the users that it changes."""
        return disturbed_latents(fact) or received_gradients(fact) or after_first_models(fact) or edges_changed(fact)

    def unsupported(self, view: View) -> str | None:
        stated = view.public.structure.get(Training)
        if stated is None:
            return Training.missing()
        if stated.feature_dropout == 0:
            return "users drop no features"
        if stated.participation < 1:
            return "it follows users who take part in every round"
        if view.public.features is not FeatureKind.BINARY:
            return f"it follows the gradients of binary rows; these are {view.public.features.value}"
        return no_replay(view) or all_clipped(view, type(self).first_rounds)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        weights = initial_weights(view)
        assert weights is not None
        nodes = unknown_users(view)
        recorded = latent_rounds(view, nodes, type(self).first_rounds)
        prior = feature_prior(view, nodes)
        chance = prior.mean
        if not prior.informed:
            drop = view.public.structure.of(Training).feature_dropout
            ones = typical_ones(first_latents(view, nodes), weights, view) * (1 - drop)
            chance = torch.full_like(chance, ones / view.public.num_features)
        chance = chance.float().clamp(1e-6, 1 - 1e-6)
        parts = []
        for low in range(0, len(nodes), _USERS_AT_ONCE):
            users = slice(low, low + _USERS_AT_ONCE)
            rounds = recorded.of(users, device)
            parts.append(self._follow(view, rounds, weights.to(device), chance[users].to(device), rng))
        found = torch.cat(parts).cpu()
        rows = best_f1_bits(found)
        sure = torch.where(rows > 0, found, 1 - found).clamp(min=1e-12).log().sum(1).exp()
        return Reconstruction(rows, nodes, sure, torch.zeros(len(nodes), dtype=torch.bool))

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_latents(view, rng, feature_dropout=1e-6)

    def _follow(
        self, view: View, rounds: LatentRounds, weights: Tensor, chance: Tensor, rng: torch.Generator
    ) -> Tensor:
        """Return posterior probabilities of ones [U, F].

        Args:
            rounds: T rounds of U users.
            weights: first weights [F, D].
            chance: prior probabilities of ones [U, F].
        """
        drop = view.public.structure.of(Training).feature_dropout
        std = added_std(view, Latents, rounds.latents[0])
        optimizer = UserOptimizer.of(view)
        users, features = chance.shape
        common = Replay(optimizer, weights[None].double())
        progress = _Progress(optimizer, users, weights)
        first = chance
        for number, values in enumerate(rounds.latents):
            live = progress.live.nonzero().squeeze(1)
            if len(live) == 0:
                break
            # A feature not seen so far: the row may still have it, and this round may keep it.
            hidden = chance[live] * drop**number
            odds = (hidden / (1 - chance[live] + hidden) * (1 - drop)).clamp(1e-30, 1 - 1e-6).logit().clamp(min=_NEVER)
            taken = torch.zeros(len(live), features + 1, dtype=torch.bool, device=odds.device)
            taken.scatter_(1, progress.feature[live], True)
            odds = torch.where(taken[:, :features], _NEVER, odds)
            known = progress.replay.weights[live] / (1 - drop)
            shared = common.weights[0].T / (1 - drop)
            mean, slots, good = self._explain(shared, known, values[live], std, odds, rng)
            if number == 0:
                first = mean + (1 - mean) * chance * drop / (1 - chance * (1 - drop))
            progress.live[live[~good]] = False
            kept = progress.take(live[good], mean[good] > 0.5, slots[good], common)
            gradient = rounds.gradients[number][:, None] * kept[..., None] / (1 - drop)
            progress.replay.step(gradient)
            common.step(torch.zeros_like(common.weights))
            progress.seen[live[good]] += 1
        hidden = chance * drop ** progress.seen[:, None]
        posterior = hidden / (1 - chance + hidden)
        posterior = torch.where(progress.seen[:, None] > 0, posterior, first)
        extended = torch.cat([posterior, torch.zeros_like(posterior[:, :1])], 1)
        return extended.scatter(1, progress.feature, 1.0)[:, :features]

    def _explain(
        self, shared: Tensor, known: Tensor, values: Tensor, std: float, odds: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Explain the latents of one round.

        Args:
            shared: weights of features not seen yet [D, F].
            known: weights of the features in a user's slots [U, S, D].
            values: latents [U, D].
            std: standard deviation of the noise on them.
            odds: prior log odds that a feature not seen yet is kept now [U, F].

        Returns:
            Posterior means of features not seen yet [U, F], which slots were kept [U, S], and which rows this explains
                [U].
        """
        gram = known @ known.mT
        gram.diagonal(dim1=1, dim2=2).add_(_RIDGE * shared.square().mean() * shared.shape[0])
        solve = torch.linalg.solve(gram, known)  # [U, S, D]
        mean = torch.zeros_like(odds)
        slots = (solve @ values[..., None])[..., 0] > 0.5
        good = self._fits(mean, slots, shared, known, values, std)
        common = shared.float()
        for attempt, rest, prior in attempts(good, odds, self.restarts if std == 0 else 0, rng):
            maps = ProjectedMaps(common, (known[rest].mT @ solve[rest]).float())
            chance = prior.sigmoid()
            start = (chance, chance * (1 - chance))
            left = maps.rest(values[rest].float())
            found = message_passing(maps, left, std**2, start, bernoulli(prior), sweeps=self.sweeps).mean
            bits = (found > 0.5).to(found)
            kept = (solve[rest] @ (values[rest] - bits.double() @ shared.mT)[..., None])[..., 0] > 0.5
            right = self._fits(bits, kept, shared, known[rest], values[rest], std)
            if not attempt:
                mean[rest], slots[rest] = found, kept
            mean[rest[right]], slots[rest[right]] = bits[right], kept[right]
            good[rest[right]] = True
        rest = (~good).nonzero().squeeze(1)
        if std == 0 and len(rest):
            maps = ProjectedMaps(common, (known[rest].mT @ solve[rest]).float())
            bits = nearest_column(maps, maps.squares(), maps.rest(values[rest].float()))
            kept = (solve[rest] @ (values[rest] - bits.double() @ shared.mT)[..., None])[..., 0] > 0.5
            right = self._fits(bits, kept, shared, known[rest], values[rest], std)
            mean[rest[right]], slots[rest[right]] = bits[right], kept[right]
            good[rest[right]] = True
        return mean, slots, good

    @staticmethod
    def _fits(bits: Tensor, slots: Tensor, shared: Tensor, known: Tensor, values: Tensor, std: float) -> Tensor:
        """Return which rows repeat their latents to rounding, or to the noise [U].

        Args:
            bits: new features [U, F].
            slots: kept slots [U, S].
            shared, known, values, std: as in :meth:`_explain`.
        """
        new, old = bits.double(), slots.double()[:, None]
        error = (new @ shared.mT + (old @ known)[:, 0] - values).abs()
        if std > 0:
            margin = 4 * std**2 * (2 / values.shape[1]) ** 0.5
            if shared.square().mean() < 2 * margin:  # under noise that hides a one, rows without it fit as well
                return torch.zeros_like(error[:, 0], dtype=torch.bool)
            return error.square().mean(1).le(std**2 + margin)
        size = new @ shared.abs().mT + (old @ known.abs())[:, 0]
        right: Tensor = (error <= _ROUNDING * size.amax(1, keepdim=True) + 1e-9).all(1)
        return right


class _Progress:
    """State of U users between rounds.

    Attributes:
        live: users of whom every round so far was explained [U].
        seen: number of explained rounds [U].
        feature: of each slot [U, S]; F where it is empty.
        replay: the weights of the slots' features.
    """

    def __init__(self, optimizer: UserOptimizer, users: int, weights: Tensor) -> None:
        device = weights.device
        self.live = torch.ones(users, dtype=torch.bool, device=device)
        self.seen = torch.zeros(users, dtype=torch.long, device=device)
        self.feature = torch.full((users, _SLOTS), len(weights), device=device)
        self.replay = Replay(optimizer, torch.zeros(users, _SLOTS, weights.shape[1], dtype=torch.double, device=device))

    def take(self, users: Tensor, bits: Tensor, slots: Tensor, common: Replay) -> Tensor:
        """Add newly seen features to the slots; return which slots of all users were kept [U, S], float64.

        Args:
            users: [u].
            bits: newly seen features of these users [u, F].
            slots: which of their slots were kept [u, S].
            common: the weights of features not seen yet.
        """
        kept = torch.zeros(self.feature.shape, dtype=torch.double, device=bits.device)
        kept[users] = slots.double()
        row, column = bits.nonzero(as_tuple=True)
        used = (self.feature < bits.shape[1]).sum(1)
        rank = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        slot = used[users[row]] + rank
        self.live[users[row[slot >= _SLOTS]]] = False
        row, column, slot = (index[slot < _SLOTS] for index in (row, column, slot))
        at = users[row]
        self.feature[at, slot] = column
        kept[at, slot] = 1.0
        self.replay.adopt((at, slot), common, (torch.zeros_like(column), column))
        return kept
