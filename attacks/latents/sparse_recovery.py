"""Sparse recovery from first latents: nFedGNN's ``W_0 x`` is a compressed measurement of a sparse row.

nFedGNN (Algorithm 1, lines 5 and 6) uploads ``W_i x_i`` and keeps ``x_i`` at the user. Where every user starts from
weights that the server broadcast, the first latents are D known random projections of a row with few non-zero entries,
and approximate message passing with a prior per feature, from auxiliary rows, recovers them: 128 latents of the
attention split carry far more than the about 130 bits of a bag of words. The 16 latents of the convolutional split
would too, to float32 precision, but no known algorithm of polynomial cost finds the row; there the posterior is the
best result.

Feature dropout at the user makes the first latents a measurement of the kept entries only, which are fewer and so found
more easily; those it dropped keep their prior. Row-normalised rows add an unknown level, tried integer by integer until
the measurements are repeated; sparse real-valued rows have a Gaussian slab as prior, and least squares on the entries
found. Noise enters the measurement model, clipping as an unknown scale. Later rounds are read by ``weight-replay`` and
``masked-rounds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.bit_recovery import Bits, determined, fitting, recover_bits
from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.message_passing import Measurements
from fglaudit.adversary.modelled import noisy_rows, training_changed
from fglaudit.adversary.priors.expected_f1 import best_f1_bits
from fglaudit.adversary.priors.feature_prior import FeaturePrior, feature_prior
from fglaudit.attacks.latents.latent_rounds import first_latents, initial_weights, missing_latents, unknown_users
from fglaudit.attacks.latents.modelled_facts import (
    after_first_models,
    clipped_latents,
    disturbed_latents,
    edges_changed,
)
from fglaudit.attacks.latents.planting import plant_latents
from fglaudit.attacks.latents.real_recovery import recover_real
from fglaudit.facts import Fact
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.payloads import Latents, ModelUpdate, Payload
from fglaudit.structure import Training
from fglaudit.view import View

_ROWS_AT_ONCE = 4096
_CLIP_STEPS = 3
_LEVELS_BESIDE = 9


@dataclass(frozen=True)
class Sketch:
    """What is seen of the rows of U users.

    Attributes:
        measured: matrix [D, F] that gave the latents; divided by the share of entries that users keep.
        values: latents [U, D].
        std: standard deviation of the noise on them.
        drop: share of the entries that users drop.
        clip: longer latents were clipped; None: no clipping.
    """

    measured: Measurements
    values: Tensor
    std: float
    drop: float
    clip: KnownClip | None


@dataclass(frozen=True)
class SparseRecovery(Attack):
    """Recover rows from first latents and known first weights.

    Attributes:
        sweeps: of message passing.
        restarts: further tries, from perturbed priors, for rows that do not repeat their latents.
    """

    name: ClassVar[str] = "sparse-recovery"
    consumes: ClassVar[tuple[type[Payload], ...]] = (Latents, ModelUpdate)
    metric: ClassVar[str] = "f1"
    first_rounds: ClassVar[int | None] = 1
    least: ClassVar[Mapping[str, float]] = {"sweeps": 1, "restarts": 0}

    sweeps: int = 40
    restarts: int = 4

    def models(self, fact: Fact) -> bool:
        """Noise and clip are part of the measurements; what happens after the first latents touches none of them."""
        sent = disturbed_latents(fact) or clipped_latents(fact) or after_first_models(fact)
        return sent or noisy_rows(fact) or edges_changed(fact) or training_changed(fact)

    def unsupported(self, view: View) -> str | None:
        return no_known_weights(view) or view.public.structure.missing(Training)

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        weights = initial_weights(view)
        assert weights is not None
        nodes = unknown_users(view)
        values = first_latents(view, nodes)
        matrix = weights.T.contiguous().to(device)
        parts = [
            self._recover(view, some, part.to(device), matrix, rng)
            for some, part in zip(torch.split(nodes, _ROWS_AT_ONCE), torch.split(values, _ROWS_AT_ONCE), strict=True)
        ]
        rows, confidence, proven = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        return Reconstruction(rows.float(), nodes, confidence.float(), proven)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        return plant_latents(view, rng)

    def _recover(
        self, view: View, nodes: Tensor, values: Tensor, matrix: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows [U, F], confidences [U] and proofs [U].

        Args:
            nodes: [U].
            values: first latents [U, D].
            matrix: transposed first weights [D, F].
        """
        prior = feature_prior(view, nodes)
        drop = view.public.structure.of(Training).feature_dropout
        measured = Measurements(matrix / (1 - drop))
        sketch = Sketch(measured, values, added_std(view, Latents, values), drop, KnownClip.of(view, Latents))
        if sketch.clip is not None and view.public.features is not FeatureKind.BINARY:
            values, std = _unclipped(view, sketch, sketch.clip, prior)
            sketch = replace(sketch, values=values, std=std)
        if view.public.features is FeatureKind.REAL:
            known = view.known_rows().x.to(values)
            return recover_real(measured, values, sketch.std, prior, known, drop, sweeps=self.sweeps)
        chance = prior.mean.to(values).clamp(1e-6, 1 - 1e-6)
        if not prior.informed:
            chance = torch.full_like(chance, _density(view, sketch))
        kept = chance * (1 - drop)
        if view.public.features is FeatureKind.SCALED_BINARY:
            found, level = self._find_scaled(view, sketch, kept, prior.level, rng)
        else:
            found, level = self._find(sketch, kept, rng), torch.ones_like(values[:, 0])
        # A feature not among the kept ones may have been dropped.
        full = found.chance + (1 - found.chance) * (chance - kept) / (1 - kept)
        whole = found.fits & (drop == 0)
        rows = torch.where(whole[:, None], found.chance, best_f1_bits(full)) * level[:, None]
        sure = torch.where(rows > 0, full, 1 - full).clamp(min=1e-12).log().sum(1).exp()
        return rows, torch.where(whole, 1.0, sure.clamp(max=0.99)), whole & determined(measured) & (sketch.clip is None)

    def _find(self, sketch: Sketch, chance: Tensor, rng: torch.Generator) -> Bits:
        """Return the binary rows behind ``sketch``; ``chance`` [U, F] are prior probabilities of ones."""
        measured, values, clip = sketch.measured, sketch.values, sketch.clip
        scale, extra = torch.ones_like(values[:, :1]), torch.zeros_like(values[:, :1])
        if clip is not None:
            squares = measured.energy * values.shape[1] * chance.sum(1, keepdim=True)
            scale, extra = clip.effect(squares, values.shape[1])
        odds = chance.logit()
        for _ in range(1 if clip is None else _CLIP_STEPS):
            error = (sketch.std**2 + extra) / scale.square()
            variance: Tensor | float = error.expand_as(values) if bool((error > 0).any()) else 0.0
            found = recover_bits(
                measured, values / scale, variance, odds, sweeps=self.sweeps, restarts=self.restarts, rng=rng
            )
            if clip is None:
                break
            spread = (found.chance * (1 - found.chance)).sum(1, keepdim=True) * measured.energy * values.shape[1]
            squares = measured.forward(found.chance).square().sum(1, keepdim=True) + spread
            scale, extra = clip.effect(squares, values.shape[1])
        return found

    def _find_scaled(
        self, view: View, sketch: Sketch, chance: Tensor, typical: float, rng: torch.Generator
    ) -> tuple[Bits, Tensor]:
        """Return the ones of rows with one unknown level each, and the levels [U].

        Where known rows sum to one, the level is 1/n of an integer n, estimated from the length of the latent;
        neighbouring integers are tried next.

        Args:
            chance: prior probabilities of ones [U, F].
            typical: level of known rows.
        """
        measured, values, std = sketch.measured, sketch.values, sketch.std
        sums = view.known_rows().x.sum(1)
        # Also where no row is known, as the default. A clip leaves the level open.
        normalised = sketch.clip is None and bool((((sums - 1).abs() < 1e-4) | (sums == 0)).all())
        energy = measured.energy * values.shape[1]
        squares = (values.square().sum(1) - values.shape[1] * std**2).clamp(min=1e-12)
        # One n has (1 - drop) n entries left of level 1/n: the square of the length is energy (1 - drop) / n.
        size = (energy * (1 - sketch.drop) / squares).round().clamp(1, chance.shape[1])
        guess = 1 / size if normalised else torch.full_like(size, typical)
        odds = chance.logit()
        best = Bits(chance.clone(), torch.zeros_like(size, dtype=torch.bool))
        level = guess.clone()
        for attempt in range(2 * _LEVELS_BESIDE + 1 if normalised and std == 0 else 1):
            rest = (~best.fits).nonzero().squeeze(1)
            if len(rest) == 0:
                break
            offset = (attempt + 1) // 2 * (1 if attempt % 2 else -1)
            tried = 1 / (size[rest] + offset).clamp(min=1) if normalised else guess[rest]
            scaled = values[rest] / tried[:, None]
            variance: Tensor | float = 0.0 if std == 0 else (std / tried[:, None]).square().expand_as(scaled)
            found = recover_bits(measured, scaled, variance, odds[rest], sweeps=self.sweeps, restarts=0, rng=rng)
            bits = (found.chance > 0.5).to(values)
            seen = measured.forward(bits)
            fitted = (seen * values[rest]).sum(1) / seen.square().sum(1).clamp(min=1e-12)
            refit = 1 / (1 / fitted.clamp(min=1e-6)).round().clamp(min=1) if normalised else fitted
            good = fitting(measured, values[rest], bits * refit[:, None]) if std == 0 else torch.zeros_like(found.fits)
            if attempt == 0:
                best.chance[rest] = found.chance
            best.chance[rest[good]] = bits[good]
            best.fits[rest[good]] = True
            level[rest[good]] = refit[good]
        return best, level


def _density(view: View, sketch: Sketch) -> float:
    """Return the share of ones implied by the mean square of the latents, for an observer without known rows."""
    square = float((sketch.values.square().mean() - sketch.std**2).clamp(min=0).item()) / sketch.measured.energy
    scaled = view.public.features is FeatureKind.SCALED_BINARY  # (1 - drop) n entries of level 1/n
    ones = (1 - sketch.drop) / max(square, 1e-12) if scaled else square / (1 - sketch.drop)
    return min(0.5, max(1.0, ones) / view.public.num_features)


def _unclipped(view: View, sketch: Sketch, clip: KnownClip, prior: FeaturePrior) -> tuple[Tensor, float]:
    """Return latents [U, D] at the length that typical rows give them, and the deviation of their error; ``prior`` is
    that of the U rows."""
    values, std = sketch.values, sketch.std
    known = view.known_rows().x
    row = (prior.mean.square() + prior.variance).sum(1).mean() if len(known) == 0 else known.square().sum(1).mean()
    squares = torch.full((1, 1), float(row) * (1 - sketch.drop) * sketch.measured.energy * values.shape[1]).to(values)
    scale, extra = clip.effect(squares, values.shape[1])
    whole = clip.unclipped(values, std)[:, None]
    return torch.where(whole, values, values / scale), float(((std**2 + extra) / scale.square()).sqrt())


def no_known_weights(view: View) -> str | None:
    """Return why first weights or latents are missing, or None."""
    if missing := missing_latents(view):
        return missing
    if initial_weights(view) is None:
        return "the users' first weights are private: they were drawn at each user and never sent"
    return None
