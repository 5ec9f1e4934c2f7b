"""Norms of rows from update dynamics: the step of a latent under a known gradient, for any weights.

After a step of SGD on ``W_i`` nFedGNN's latent ``W_i x_i`` has moved by ``-rate g ||x_i||^2`` (plus decay), after a
step of Adam, whose steps have one size, by about ``-rate sign(g) ||x_i||_1``. So the server, which sent g, infers the
squared or the L1 norm (for a binary row both are its number of ones), even where the first weights are private. The
contribution of the weights themselves, through decay, is a random effect of known variance: the estimate is that of
:func:`fglaudit.attacks.latents.weight_moments.weight_moments` for the moment of order 0, over the first rounds. Noise
on the latents is averaged over them, and rounds that were clipped are left out; if the estimate is then no more precise
than the spread of norms of the rows the server knows, their median is returned. An estimate within its error of zero is
taken for zero: rows without entries are frequent, others so small are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.attacks.latents.latent_rounds import all_clipped, latent_rounds, missing_latents, unknown_users
from fglaudit.attacks.latents.modelled_facts import (
    clipped_latents,
    disturbed_latents,
    edges_changed,
    received_gradients,
)
from fglaudit.attacks.latents.optimizer_replay import UserOptimizer, unknown_steps
from fglaudit.attacks.latents.planting import plant_updates
from fglaudit.attacks.latents.weight_moments import count_spread, weight_moments
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Inference, Planted
from fglaudit.payloads import LatentGradients, Latents, Payload
from fglaudit.structure import Latent, Training
from fglaudit.view import View

_USERS_AT_ONCE = 256
_TYPICAL = 20.0
_UNINFORMATIVE = 0.9
"""Where the estimate's deviation exceeds this share of the prior's, the typical norm is the better answer."""
_NOTHING = 4.0
"""An estimate of at most so many deviations is that of a row without entries, whose norm is zero to the last bit."""
_RESOLVED = 0.01
"""Share of the typical norm that this must be, else small rows look alike; right is what is within one percent."""


@dataclass(frozen=True)
class _UpdateNorms(Attack):
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents, LatentGradients)
    metric: ClassVar[str] = "exact_rate"
    first_rounds: ClassVar[int | None] = 16
    optimizer: ClassVar[str]

    def models(self, fact: Fact) -> bool:
        """As in ``weight-replay``; rows that were changed have other norms."""
        sent = disturbed_latents(fact) or clipped_latents(fact) or received_gradients(fact)
        return sent or edges_changed(fact)

    def unsupported(self, view: View) -> str | None:
        if next(iter(view.messages.of(LatentGradients)), None) is None:
            return "the observer saw no LatentGradients"
        if missing := missing_latents(view):
            return missing
        if missing := unknown_steps(view) or view.public.structure.missing(Latent):
            return missing
        stated = view.public.structure.of(Training)
        if stated.optimizer != type(self).optimizer:
            return f"users step with {stated.optimizer}, which shows another norm"
        if stated.feature_dropout > 0:
            return "users drop features: what moves the latents most are the masks"
        if view.public.structure.of(Latent).goes_on_from != "own":
            return "users take up new weights every round, so that their own steps do not show in their latents"
        return all_clipped(view, type(self).first_rounds)

    def norms(self, x: Tensor) -> Tensor:
        """Return the norm that is asked for, of rows [A, F]: [A]."""
        raise NotImplementedError

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        nodes = unknown_users(view)
        recorded = latent_rounds(view, nodes, type(self).first_rounds)
        public = view.public
        known = self.norms(view.known_rows().x.double())
        expected = float(known.mean().item()) if len(known) else _TYPICAL
        prior = count_spread(known)
        typical = float(known.median().item()) if len(known) else public.num_features / 2
        std = added_std(view, Latents, recorded.latents[0])
        bound = public.structure.of(Latent).bound
        whole = public.features is FeatureKind.BINARY
        estimates = []
        for low in range(0, len(nodes), _USERS_AT_ONCE):
            moments = weight_moments(
                recorded.of(slice(low, low + _USERS_AT_ONCE), device),
                UserOptimizer.of(view),
                bound,
                1,
                expected,
                std,
                KnownClip.of(view, Latents),
                spread=prior,
                whole=whole,
            )
            uninformative = moments.count_std > _UNINFORMATIVE * (expected if prior is None else prior)
            norm = moments.count.round() if whole and prior is not None else moments.count
            nothing = (_NOTHING * moments.count_std).clamp(max=_RESOLVED * expected)
            norm = torch.where(norm <= nothing, 0.0, norm)
            estimates.append(torch.where(uninformative, typical, norm))
        estimate = torch.cat(estimates).cpu()
        return Inference(type(self).quantity, nodes, estimate)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_updates(view, rng, type(self).optimizer)


@dataclass(frozen=True)
class UpdateSquaredNorms(_UpdateNorms):
    """Read squared norms off the movement of latents under SGD."""

    name: ClassVar[str] = "update-squared-norms"
    quantity: ClassVar[str] = "squared-norms"
    optimizer: ClassVar[str] = "sgd"

    def norms(self, x: Tensor) -> Tensor:
        return x.square().sum(-1)


@dataclass(frozen=True)
class UpdateL1Norms(_UpdateNorms):
    """Read L1 norms off the movement of latents under Adam."""

    name: ClassVar[str] = "update-l1-norms"
    quantity: ClassVar[str] = "l1-norms"
    optimizer: ClassVar[str] = "adam"

    def norms(self, x: Tensor) -> Tensor:
        return x.abs().sum(-1)
