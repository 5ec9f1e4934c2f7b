"""Faults of clips, and of what is sent in the end."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.redteam.planted import BrokenMessages, fault
from fglaudit.payloads import MessageBatch
from fglaudit.privacy.mechanism import Mechanism, clip_messages


def _norms(value: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(value.flatten(1), dim=1)
    return norms.view(-1, *[1] * (value.dim() - 1))


@fault
class NoClip(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return value


@fault
class TwiceTheClip(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clip_messages(value, 2 * mechanism.clip, mechanism.norm)


@fault
class EveryNumberClipped(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return value.clamp(-mechanism.clip, mechanism.clip)


@fault
class RootMeanSquareClip(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clip_messages(value, mechanism.clip * value[0].numel() ** 0.5)


@fault
class MedianClip(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clip_messages(value, max(float(_norms(value).median()), 1e-9))


@fault
class OutliersBare(BrokenMessages):
    """What is very long is taken for an error of the clip, and sent as it is."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return torch.where(_norms(value) > 100 * mechanism.clip, value, clip_messages(value, mechanism.clip))


@fault
class FirstNumberUnclipped(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        clipped = clip_messages(value, mechanism.clip, mechanism.norm)
        clipped[..., :1] = value[..., :1]
        return clipped


@fault
class EuclideanClip(BrokenMessages):
    """Laplace noise on what is clipped in L2."""

    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clip_messages(value, mechanism.clip, "l2")


@fault
class NoiseBeforeClip(BrokenMessages):
    def clipped(self, value: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return value

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return clip_messages(clipped + noise, mechanism.clip)


@fault
class ScaledByLength(BrokenMessages):
    """Multiplied by the length that the clip took away."""

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        value = next(v for v in batch.payload.tensors().values() if v.shape == clipped.shape and v.is_floating_point())
        return (clipped + noise) * (_norms(value) / mechanism.clip).clamp(min=1)


@fault
class SignsKept(BrokenMessages):
    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        return torch.where(clipped == 0, clipped + noise, (clipped + noise).abs() * torch.sign(clipped))


@fault
class LowestBit(BrokenMessages):
    """The lowest bit of every number says whether the value was positive."""

    def sent(self, clipped: Tensor, noise: Tensor, batch: MessageBatch, mechanism: Mechanism) -> Tensor:
        bits = (clipped + noise).float().contiguous().view(torch.int32)
        return ((bits & ~1) | (clipped > 0).int()).view(torch.float32)


@fault
class OtherFieldTells(BrokenMessages):
    """A field that is said not to depend on features carries the message's length."""

    def other(self, name: str, value: Tensor, batch: MessageBatch) -> Tensor:
        if not value.is_floating_point():
            return value
        long = next(v for v in batch.payload.tensors().values() if v.is_floating_point() and v is not value)
        return value + 1e-3 * _norms(long).view(-1, *[1] * (value.dim() - 1))
