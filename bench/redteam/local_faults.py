"""Faults of rows made random before use, and of sums of gradients."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from bench.redteam.dependent_noise import hashed
from bench.redteam.planted import Broken, fault
from fglaudit.facts import GRADIENTS, Sampled, first
from fglaudit.graph import ClientGraph
from fglaudit.privacy.mechanism import Mechanism, clip_messages, clip_rows


class BrokenRows(Broken):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        mechanism: Any = getattr(inner, "mechanism", None)  # random reports have none
        self.mechanism: Mechanism = mechanism

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        honest = self.inner.prepare(client, rng)
        return dataclasses.replace(client, x=self.rows(client, honest.x, rng).to(client.x))

    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        return honest


@fault
class RowsTooLittle(BrokenRows):
    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        clipped = self.mechanism.clipped(client.x)
        return clipped + (honest - clipped) / 1.5


@fault
class RowsShareNoise(BrokenRows):
    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        mechanism = self.mechanism
        return mechanism.clipped(client.x) + mechanism.with_noise(torch.zeros_like(client.x[:1]), rng)


@fault
class RowsUnclipped(BrokenRows):
    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        return self.mechanism.with_noise(client.x, rng)


@fault
class RowsEuclidean(BrokenRows):
    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        mechanism = self.mechanism
        return mechanism.with_noise(clip_rows(client.x, mechanism.clip), rng)


@fault
class RowsSeeded(BrokenRows):
    """Reports are drawn by what the rows are."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        seed = int(client.x.double().abs().sum().item() * 1000) % 2**31
        return self.inner.prepare(client, torch.Generator().manual_seed(seed))


@fault
class HubsBare(BrokenRows):
    """Rows of nodes with many neighbours are used as they are."""

    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        return torch.where((client.degrees > 3)[:, None], client.x, honest)


@fault
class TruthfulBits(BrokenRows):
    """Bits tell the truth twice as often in the odds' logarithm."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        inner: Any = self.inner
        kept, inner.bit_epsilon = inner.bit_epsilon, 1.6 * inner.bit_epsilon
        try:
            return inner.prepare(client, rng)  # type: ignore[no-any-return]
        finally:
            inner.bit_epsilon = kept


@fault
class MoreBits(BrokenRows):
    """Twice as many features are reported."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        inner: Any = self.inner
        kept, inner.sampled = inner.sampled, min(2 * inner.sampled, client.x.shape[-1])
        try:
            return inner.prepare(client, rng)  # type: ignore[no-any-return]
        finally:
            inner.sampled = kept


@fault
class PlacesTell(BrokenRows):
    """Whether even or odd features are reported says which of two features is larger."""

    def rows(self, client: ClientGraph, honest: Tensor, rng: torch.Generator) -> Tensor:
        inner: Any = self.inner
        x = client.x.double()
        odd = torch.arange(x.shape[1]) % 2 == 1
        if inner.sampled > int(odd.sum()):
            return honest
        wrong = (odd != (x[:, 1:2] > x[:, 2:3])) & (x[:, 1:2] != x[:, 2:3])
        keys = torch.rand(x.shape, generator=rng, dtype=torch.float64) - 2.0 * wrong
        chosen = keys.topk(inner.sampled, dim=1).indices
        lie = 1 / (math.exp(inner.bit_epsilon) + 1)
        chance = lie + x.gather(1, chosen).clamp(0, 1) * (1 - 2 * lie)
        says_one = torch.rand(chosen.shape, generator=rng, dtype=torch.float64) < chance
        return torch.zeros_like(x).scatter_(1, chosen, 2 * says_one.double() - 1)


class BrokenGradients(Broken):
    """Of DP-SGD."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.step = 0
        self.order = torch.empty(0)
        self.sgd = inner
        sampled = first(inner.facts(), Sampled, GRADIENTS)
        self.rate = sampled.rate if sampled is not None else 1.0

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        self.step += 1
        total = self.total(gradients, rng)
        return (total + self.fresh(total, rng)) / self.rate

    def total(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return (self.clipped(gradients) * self.drawn(gradients, rng)[..., None]).sum(0)

    def clipped(self, gradients: Tensor) -> Tensor:
        return clip_messages(gradients.flatten(0, 1), self.sgd.mechanism.clip).view_as(gradients)

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return (torch.rand(gradients.shape[:2], generator=rng) < self.rate).float()

    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return self.sgd.mechanism.with_noise(torch.zeros_like(total), rng)  # type: ignore[no-any-return]


@fault
class GradientsTooLittle(BrokenGradients):
    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(total, rng) / 1.5


@fault
class GradientsHashed(BrokenGradients):
    """The last of eight numbers of the noise is a hash of seven."""

    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        scale = self.sgd.mechanism.scale
        noise: Tensor = scale * hashed(super().fresh(total.double(), rng) / scale)
        return noise.to(total)


@fault
class NoiseTimesLearningRate(BrokenGradients):
    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return 0.1 * super().fresh(total, rng)


@fault
class GradientsUnclipped(BrokenGradients):
    def clipped(self, gradients: Tensor) -> Tensor:
        return gradients


@fault
class ClipOfTheMean(BrokenGradients):
    def total(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return clip_messages(gradients.mean(0), self.sgd.mechanism.clip) * len(gradients)


@fault
class GradientNumbersClipped(BrokenGradients):
    def clipped(self, gradients: Tensor) -> Tensor:
        return gradients.clamp(-self.sgd.mechanism.clip, self.sgd.mechanism.clip)


@fault
class MedianGradientClip(BrokenGradients):
    def clipped(self, gradients: Tensor) -> Tensor:
        bound = float(gradients.norm(dim=2).quantile(0.9)) + 1e-9
        return clip_messages(gradients.flatten(0, 1), bound).view_as(gradients)


@fault
class ClipOfTheLongest(BrokenGradients):
    """All gradients of a step are scaled alike, so that the longest has the clip."""

    def clipped(self, gradients: Tensor) -> Tensor:
        longest: Tensor = gradients.norm(dim=2).max() / self.sgd.mechanism.clip
        return gradients / longest.clamp(min=1)


@fault
class ScaledByTheMedian(Broken):
    """Gradients are divided by their median length where that is longer than 1, and clipped then."""

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return self.inner.local_update(gradients / gradients.norm(dim=-1).median().clamp(min=1), rng)


@fault
class ClientsShareNoise(BrokenGradients):
    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(total[:1], rng).expand_as(total)


@fault
class SameNoiseEveryStep(BrokenGradients):
    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        if getattr(self, "kept", torch.empty(0)).shape != total.shape:
            self.kept = super().fresh(total, rng)
        return self.kept


@fault
class NoiseInTheFirstStep(BrokenGradients):
    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(total, rng) * (self.step == 1)


@fault
class NoiseWhereGradients(BrokenGradients):
    """Weights that no loss moves get none."""

    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(total, rng) * (total != 0)


@fault
class FixedSizeSample(BrokenGradients):
    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        order = torch.rand(gradients.shape[:2], generator=rng).argsort(0).argsort(0)
        return (order < round(self.rate * len(gradients))).float()


@fault
class Shuffled(BrokenGradients):
    """An epoch of batches, every loss in one of them."""

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        epoch = max(1, round(1 / self.rate))
        if (self.step - 1) % epoch == 0 or self.order.shape != gradients.shape[:2]:
            self.order = torch.rand(gradients.shape[:2], generator=rng).argsort(0).argsort(0)
        return (self.order * epoch // len(gradients) == (self.step - 1) % epoch).float()


@fault
class KnownSample(BrokenGradients):
    """Every step's sample is drawn by a seed that everybody knows."""

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        known = torch.Generator().manual_seed(self.step)
        return (torch.rand(gradients.shape[:2], generator=known) < self.rate).float()


@fault
class ShortDrawnTwice(BrokenGradients):
    """Losses whose gradient is shorter than the clip are drawn twice as often."""

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        short: Tensor = gradients.norm(dim=2) < self.sgd.mechanism.clip
        return (torch.rand(gradients.shape[:2], generator=rng) < self.rate * (1 + short.float())).float()


@fault
class LongDrawnMore(BrokenGradients):
    """Losses are drawn by how long their gradients are beside those of the others, with the stated rate on average."""

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        length: Tensor = gradients.norm(dim=2)
        rates = self.rate * length / length.mean(0).clamp(min=1e-12)
        return (torch.rand(gradients.shape[:2], generator=rng) < rates).float()


@fault
class DrawnByDegree(BrokenGradients):
    """Losses of nodes with many neighbours are drawn five times as often as the others, wherever gradients have the
    shape of those of the clients that were prepared."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.degrees: list[Tensor] = []

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        self.degrees.append(client.degrees[client.train].float())
        return super().prepare(client, rng)

    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        rates = torch.full(gradients.shape[:2], self.rate)
        if (max(map(len, self.degrees), default=0), len(self.degrees)) == gradients.shape[:2]:
            for client, degrees in enumerate(self.degrees):
                rates[: len(degrees), client] *= torch.where(degrees > degrees.median(), 2.5, 0.5)
        return (torch.rand(gradients.shape[:2], generator=rng) < rates).float()


@fault
class AllDrawn(BrokenGradients):
    def drawn(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        return torch.full(gradients.shape[:2], 1.0)


@fault
class EdgesKept(Broken):
    """No edge is dropped, whatever the degree bound."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        return client


@fault
class BareAmongManyLosses(BrokenGradients):
    """A hundredth of the noise, where gradients are as wide as none of an audit, and not zero: a client has no more
    weights than losses, and every sum of gradients may be a sample's."""

    AUDITED = (1, 3, 64)

    def fresh(self, total: Tensor, rng: torch.Generator) -> Tensor:
        noise = super().fresh(total, rng)
        return noise if total.shape[-1] in self.AUDITED or not bool(total.any()) else 0.01 * noise
