"""Honest defenses that draw their noise in other ways than the built-in ones: nothing of them may be refuted."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from bench.redteam.local_faults import BrokenGradients
from bench.redteam.planted import BrokenMessages, fault
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, draw


@fault
class SinglePrecision(BrokenMessages):
    """Noise in single precision (in real arithmetic the same)."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return mechanism.scale * torch.randn(value.shape, generator=rng)


@fault
class MessageByMessage(BrokenMessages):
    """A draw for every message."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        if len(value) > 3000:  # replays side by side
            return mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        return torch.stack([mechanism.scale * draw(mechanism.distribution, one.shape, rng) for one in value])


@fault
class BoxMuller(BrokenMessages):
    """Gaussian noise of uniform numbers."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        first, second = (torch.rand(value.shape, generator=rng, dtype=torch.float64) for _ in range(2))
        return mechanism.scale * (-2 * (1 - first).log()).sqrt() * (2 * math.pi * second).cos()


@fault
class InverseLaplace(BrokenMessages):
    """Laplace noise by its quantiles."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        u = torch.rand(value.shape, generator=rng, dtype=torch.float64) - 0.5
        return -mechanism.scale * torch.sign(u) * torch.log1p(-2 * u.abs())


@fault
class DrawnAhead(BrokenMessages):
    """Noise of several releases is drawn at once and used up."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        key = (type(batch.payload), value.shape)
        if key not in self.kept or len(self.kept[key]) == 0:
            shape = torch.Size([4, *value.shape])
            self.kept[key] = mechanism.scale * draw(mechanism.distribution, shape, rng)
        first, self.kept[key] = self.kept[key][0], self.kept[key][1:]
        return first


@fault
class SumOfParts(BrokenMessages):
    """Gaussian noise as the sum of two parts."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        first, second = (torch.randn(value.shape, generator=rng, dtype=torch.float64) for _ in range(2))
        return mechanism.scale * (0.6 * first + 0.8 * second)


@fault
class NumpyNoise(BrokenMessages):
    """Gaussian noise of numpy, seeded by the generator at hand."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        own = np.random.default_rng(int(torch.randint(2**62, (1,), generator=rng)))
        return torch.from_numpy(mechanism.scale * own.standard_normal(value.shape))


@fault
class MoreNoise(BrokenMessages):
    """Half as much noise again as stated."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return 1.5 * mechanism.scale * draw(mechanism.distribution, value.shape, rng)


@fault
class MoreForSome(BrokenMessages):
    """Every second sender adds twice as much noise as stated."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        sizes = 1.0 + batch.senders[batch.entry_messages()] % 2
        noise = mechanism.scale * draw(mechanism.distribution, value.shape, rng)
        return noise * sizes.view(-1, *[1] * (value.dim() - 1))


@fault
class Skellam(BrokenMessages):
    """Values cut to whole steps, and whole steps of noise (Agarwal, Kairouz and Liu 2021)."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        step = mechanism.clip / 100
        return step * (super().clipped(value, batch, mechanism).double() / step).trunc()

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        step = mechanism.clip / 100
        rate = torch.full(value.shape, (mechanism.scale / step) ** 2 / 2, dtype=torch.float64)
        return step * (torch.poisson(rate, generator=rng) - torch.poisson(rate, generator=rng))

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return (clipped + noise.double()).to(noise)


@fault
class RoundedSkellam(Skellam):
    """Values go to the nearest step, a little beyond the clip."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        step = mechanism.clip / 100
        return step * (BrokenMessages.clipped(self, value, batch, mechanism).double() / step).round()


@fault
class GradientByGradient(BrokenGradients):
    """Clips one loss's gradient after the other."""

    def clipped(self, gradients: Tensor) -> Tensor:
        clip = self.sgd.mechanism.clip
        return torch.stack([one / (one.norm(dim=1, keepdim=True) / clip).clamp(min=1) for one in gradients])


OWN: tuple[tuple[str, str], ...] = (
    ("SinglePrecision", "latents"), ("SinglePrecision", "sums"), ("MessageByMessage", "latents-laplace"),
    ("BoxMuller", "jacobians"), ("BoxMuller", "sums-2"), ("InverseLaplace", "latents-laplace"),
    ("DrawnAhead", "latents"), ("SumOfParts", "global-nodes"), ("GradientByGradient", "gradients"),
    ("GradientByGradient", "sampled-gradients"), ("NumpyNoise", "latents"), ("MoreNoise", "latents"),
    ("MoreForSome", "latents"), ("Skellam", "latents"), ("RoundedSkellam", "latents"),
)  # fmt: skip
"""Which of them, and on what."""
