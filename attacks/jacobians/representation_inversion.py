"""Inversion of the known encoder: the server rebuilds rows from hidden representations alone.

Variant V2 of GFL-APPNP sends no Jacobians; of a node only ``h_j`` is sent, C numbers a round. But everybody knows the
encoder's weights of every round, so that R rounds give (R + 1) C equations for the F features
(:mod:`fglaudit.attacks.jacobians.encoder_inversion`), solved from several starts. Under a linear encoder that never
moves they would be worth C numbers; training moves it, and how far it moves decides how much of the row the equations
determine. Rows that the solver could not fit, and rows that fit but are not determined, are returned as guesses and
never claimed: a solver that fails is no evidence of protection. What the defense does to representations (clips, noise,
rounding) is part of the equations: what is fitted are representations as they were sent. Discrete rows are looked for
once more among zeros and ones (:mod:`fglaudit.attacks.jacobians.discrete_rows`).

Representations averaged over several samples fit no single row; the rows returned then stand for all samples and are
not claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.modelled import about, known_noise, message_clip, random_rows, sealed
from fglaudit.adversary.priors.feature_prior import feature_prior
from fglaudit.attacks.jacobians.discrete_rows import MOST_FEATURES, find_bits
from fglaudit.attacks.jacobians.encoder import (
    common_model,
    foreign_batches,
    global_models,
    misfit,
    never_sent,
    untouched,
)
from fglaudit.attacks.jacobians.encoder_inversion import Inverted, exactness, invert_encoder, linear_start
from fglaudit.attacks.jacobians.hidden_history import HiddenHistory, hidden_history
from fglaudit.attacks.jacobians.planting import plant_encoder_run
from fglaudit.facts import Fact, Rounded
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import HiddenRepresentations, ModelUpdate, Payload
from fglaudit.view import View


@dataclass(frozen=True)
class RepresentationInversion(Attack):
    """Rebuild rows from the hidden representations of many rounds.

    Attributes:
        starts: starting points of the solver, of which the one that explains a node best is used: the solution for
            units that are half active, then random rows.
        steps: damped Gauss-Newton steps per start.
    """

    name: ClassVar[str] = "representation-inversion"
    consumes: ClassVar[tuple[type[Payload], ...]] = (HiddenRepresentations, ModelUpdate)
    metric: ClassVar[str] = "cosine"
    least: ClassVar[Mapping[str, float]] = {"starts": 1, "steps": 1}

    starts: int = 2
    steps: int = 48

    def models(self, fact: Fact) -> bool:
        """Noise, clips, rounding and seals of the representations, and random reports of rows."""
        sent = HiddenRepresentations
        rounded = isinstance(fact, Rounded) and about(fact, sent)
        kinds = (known_noise, message_clip, sealed, never_sent)
        return (
            rounded
            or any(kind(fact, sent) for kind in kinds)
            or any(kind(fact) for kind in (untouched, common_model, random_rows))
        )

    def unsupported(self, view: View) -> str | None:
        return misfit(view, HiddenRepresentations)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        models = global_models(view, device)
        nodes = torch.unique(torch.cat([batch.senders for batch, _ in foreign_batches(view, HiddenRepresentations)]))
        history = hidden_history(view, models, nodes, device)
        if history is None:
            none = torch.empty(0)
            return Reconstruction(torch.empty(0, view.public.num_features), none.long(), none, claimed=none.bool())
        found = self._best(view, history, nodes, rng)
        confidence, exact = exactness(found.rows, found.deviation)
        confidence, claimed = torch.where(found.fits, confidence, 0.0), found.fits & exact
        rows, features = found.rows, view.public.num_features
        if view.public.features is not FeatureKind.REAL and features <= MOST_FEATURES:
            scaled, chance = view.public.features is FeatureKind.SCALED_BINARY, feature_prior(view, nodes).mean
            ones = rows > 0.5 * (rows.amax(1, keepdim=True) if scaled else 1.0)
            discrete = find_bits(history, ones.double(), chance.to(rows), scaled, rng)
            rows = torch.where(discrete.fits[:, None], discrete.rows, rows)
            claimed = torch.where(discrete.fits, discrete.alone, claimed)
            confidence = torch.where(discrete.fits, torch.where(discrete.alone, 1.0, 0.5).to(confidence), confidence)
        return Reconstruction(rows.float().cpu(), nodes, confidence.float().cpu(), claimed=claimed.cpu())

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_encoder_run(view, rng, jacobians=False)

    def _best(self, view: View, history: HiddenHistory, nodes: Tensor, rng: torch.Generator) -> Inverted:
        """Return for every node the result of the start that explains it best."""
        prior = feature_prior(view, nodes)
        mean = prior.mean.to(history.values)
        # Without known rows the scale of the features follows from the representations under the first model.
        if prior.informed:
            spread = prior.variance.mean().clamp(min=1e-6).sqrt()
        else:
            spread = self._scale(history, mean.shape[1], rng)
        precision = torch.full((len(nodes),), float(1 / spread.square().item()), device=mean.device, dtype=torch.double)
        if not prior.informed:
            mean = torch.zeros_like(mean)
        best = None
        for index in range(self.starts):
            noise = torch.randn(mean.shape, generator=rng, dtype=torch.double).to(mean)
            linear = linear_start(history.values, history.models, mean, precision)
            start = linear if index == 0 else mean + spread * noise
            given = (history.values, history.models, history.error, start, mean, precision)
            found = invert_encoder(*given, clip=history.clip, steps=self.steps)
            best = found if best is None else _better(best, found)
            if bool(best.fits.all()):
                break
        assert best is not None
        return best

    @staticmethod
    def _scale(history: HiddenHistory, features: int, rng: torch.Generator) -> Tensor:
        """Return the entries' deviation with which random rows have representations as large as the ones seen."""
        draw = torch.randn(256, features, generator=rng, dtype=torch.double).to(history.values)
        first = history.models[0]
        size = ((draw @ first.w1).relu() @ first.w2).square().mean().sqrt()
        return history.values[:, 0].square().mean().sqrt() / size.clamp(min=1e-30)


def _better(first: Inverted, second: Inverted) -> Inverted:
    swap = second.residual < first.residual
    return Inverted(
        torch.where(swap[:, None], second.rows, first.rows),
        torch.where(swap, second.deviation, first.deviation),
        torch.where(swap, second.residual, first.residual),
    )
