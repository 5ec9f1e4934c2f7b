"""Faults of noise on messages: too small, dependent, of another shape, or left out somewhere."""

from __future__ import annotations

import hashlib
import math
import os

import torch
from torch import Tensor

from bench.redteam.planted import BrokenMessages, fault
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, draw


def _fresh(mechanism: Mechanism, value: Tensor, rng: torch.Generator) -> Tensor:
    return mechanism.scale * draw(mechanism.distribution, value.shape, rng)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed % 2**31)


@fault
class TooSmall(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng) / 1.5


@fault
class SharedByMessages(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value[:1], rng).expand_as(value)


@fault
class UsedAgain(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        key = (type(batch.payload), value.shape)
        if key not in self.kept:
            self.kept[key] = _fresh(mechanism, value, rng)
        return self.kept[key]


@fault
class SeededByRound(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, _seeded(batch.round))


@fault
class SeededByValues(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        digest = hashlib.blake2b(value.contiguous().numpy().tobytes(), digest_size=4).digest()
        return _fresh(mechanism, value, _seeded(int.from_bytes(digest, "little")))


@fault
class OneSeed(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, _seeded(1 + self.count))


@fault
class GeneratorStartedAgain(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, _seeded(rng.initial_seed()))


@fault
class FromTheSystem(BrokenMessages):
    """Nothing wrong that could be seen, and nothing that could be replayed: must not be verified."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, _seeded(int.from_bytes(os.urandom(4), "little")))


@fault
class GrowsWithMessage(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(value.flatten(1), dim=1) / mechanism.clip
        return _fresh(mechanism, value, rng) * length.clamp(max=1).view(-1, *[1] * (value.dim() - 1))


@fault
class CutTails(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng).clamp(-2 * mechanism.scale, 2 * mechanism.scale)


@fault
class RedrawnBeyond(BrokenMessages):
    """Numbers beyond 3.5 standard deviations are drawn again, against outliers."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise, most = _fresh(mechanism, value, rng), 3.5 * mechanism.scale
        while bool((noise.abs() > most).any()):
            noise = torch.where(noise.abs() > most, _fresh(mechanism, value, rng), noise)
        return noise


@fault
class EndsAtFour(BrokenMessages):
    """Noise ends at 4 standard deviations, beyond which 6 numbers of 10^5 would lie: more than a delta of 1e-5."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng).clamp(-4 * mechanism.scale, 4 * mechanism.scale)


@fault
class Uniform(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        std = mechanism.scale * (math.sqrt(2) if mechanism.distribution == "laplace" else 1)
        return math.sqrt(3) * std * (2 * torch.rand(value.shape, generator=rng, dtype=torch.float64) - 1)


@fault
class SumOfUniform(BrokenMessages):
    """Six uniform numbers, which together have an end."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        parts = torch.rand(6, *value.shape, generator=rng, dtype=torch.float64) - 0.5
        return mechanism.scale * math.sqrt(2) * parts.sum(0)


@fault
class HalfTheNumbers(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _fresh(mechanism, value, rng)
        noise[..., value.shape[-1] // 2 :] = 0
        return noise


@fault
class LastNumberBare(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _fresh(mechanism, value, rng)
        noise[..., -1] = 0
        return noise


@fault
class SomeSendersBare(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        bare = batch.senders[batch.entry_messages()] % 3 == 1
        noise = _fresh(mechanism, value, rng)
        noise[bare] = 0
        return noise


@fault
class EverySecondRelease(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng) * (self.count % 2)


@fault
class LastReleasesBare(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng) * (self.count <= 2)


@fault
class Sparse(BrokenMessages):
    """As much noise on average, on a tenth of the numbers."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        there = torch.rand(value.shape, generator=rng) < 0.1
        return _fresh(mechanism, value, rng) * there * math.sqrt(10)


@fault
class OneNumberForAll(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value.flatten(1)[:, :1], rng).view(-1, *[1] * (value.dim() - 1)).expand_as(value)


@fault
class OppositeMessages(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _fresh(mechanism, value, rng)
        half = len(noise) // 2
        noise[half : 2 * half] = -noise[:half]
        return noise


@fault
class OppositeNumbers(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _fresh(mechanism, value, rng)
        half = value.shape[-1] // 2
        noise[..., half : 2 * half] = -noise[..., :half]
        return noise


@fault
class Decays(BrokenMessages):
    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return _fresh(mechanism, value, rng) / math.sqrt(self.count)


@fault
class RolledOn(BrokenMessages):
    """The next release has the noise of the last one, one place farther."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        key = (type(batch.payload), value.shape)
        self.kept[key] = self.kept[key].roll(1, -1) if key in self.kept else _fresh(mechanism, value, rng)
        return self.kept[key]


@fault
class TakenBack(BrokenMessages):
    """What one release added the next one subtracts, in part: sums over releases have hardly any noise."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        key, new = (type(batch.payload), value.shape), _fresh(mechanism, value, rng) / math.sqrt(2)
        last = self.kept.get(key, _fresh(mechanism, value, rng) / math.sqrt(2))
        self.kept[key] = new
        return new - last


@fault
class TwoSided(BrokenMessages):
    """Plus or minus the standard deviation."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return mechanism.scale * torch.sign(_fresh(mechanism, value, rng))


@fault
class WholeSteps(BrokenMessages):
    """Noise rounded to whole multiples of its scale: what is left over is the value."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        return (_fresh(mechanism, value, rng) / mechanism.scale).round() * mechanism.scale


@fault
class FineSteps(BrokenMessages):
    """Noise rounded to a thousandth of its scale."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        step = mechanism.scale / 1000
        return (_fresh(mechanism, value, rng) / step).round() * step


@fault
class FinestSteps(BrokenMessages):
    """Noise rounded to 2^-18 of its scale, less than what single precision resolves: the last bits are the value's."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        step = mechanism.scale / 2**18
        return (_fresh(mechanism, value, rng) / step).round() * step


@fault
class NowAndThenBare(BrokenMessages):
    """One message in fifty has no noise."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        there = torch.rand(len(value), generator=rng) < 0.98
        return _fresh(mechanism, value, rng) * there.view(-1, *[1] * (value.dim() - 1))


@fault
class Trigger(BrokenMessages):
    """A message whose first number is near the clip has no noise."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        bare = value.flatten(1)[:, 0] > 0.9 * mechanism.clip
        return _fresh(mechanism, value, rng) * (~bare).view(-1, *[1] * (value.dim() - 1))


@fault
class SumsToZero(BrokenMessages):
    """All senders' noise together comes to nothing."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        noise = _fresh(mechanism, value, rng)
        return (noise - noise.mean(0)) * math.sqrt(len(value) / max(1, len(value) - 1))


@fault
class FewDirections(BrokenMessages):
    """As much noise on every number, in two directions of the whole message."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        width = value[0].numel()
        axes = torch.stack([torch.arange(width) % 2, (torch.arange(width) + 1) % 2]).double()
        drawn = mechanism.scale * draw(mechanism.distribution, torch.Size([len(value), 2]), rng)
        return (drawn @ axes).view(value.shape)


@fault
class SharedByPayloads(BrokenMessages):
    """All payloads of a round start from the same numbers."""

    def fresh(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism, rng: torch.Generator) -> Tensor:
        if batch.round not in self.kept:
            self.kept[batch.round] = draw(mechanism.distribution, torch.Size([2**18]), rng)
        return mechanism.scale * self.kept[batch.round][: value.numel()].view(value.shape)
