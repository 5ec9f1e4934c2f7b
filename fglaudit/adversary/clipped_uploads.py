"""What clip and noise leave of FedGT's uploads, as far as a linear answer goes (Bussgang's theorem)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import ndtr

from fglaudit.adversary.clipping import Clipping
from fglaudit.payloads import Payload
from fglaudit.view import View

_DENSITY = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Answer:
    """What becomes of coordinates mu.

    Attributes:
        mean: of ``clip(mu)``, shaped as mu, like the others.
        slope: how much ``clip(mu)`` answers to mu.
        rest: variance of ``clip(mu)`` beside that.
        variance: of mu.
    """

    mean: Tensor
    slope: Tensor
    rest: Tensor
    variance: Tensor

    def square(self) -> float:
        """Return the mean square of ``clip(mu)``."""
        return float((self.mean.square() + self.rest + self.slope.square() * self.variance).mean().item())


@dataclass(frozen=True)
class UploadClip:
    """The clip of a payload before it gets noise.

    Attributes:
        bound: of every coordinate, None where coordinates are not cut off.
        length: of the norm of a message, None where messages are not scaled down.
        order: of that norm, 1 or 2.
    """

    bound: float | None = None
    length: float | None = None
    order: int = 1

    @staticmethod
    def of(view: View, payload: type[Payload]) -> UploadClip:
        """Read the defense's public parameters."""
        clip = Clipping.of(view, payload)
        if payload.__name__ not in view.public.noise or clip is None:
            return UploadClip()
        return (
            UploadClip(bound=clip.bound)
            if clip.order == math.inf
            else UploadClip(length=clip.bound, order=int(clip.order))
        )

    def answer(self, mean: Tensor, std: Tensor) -> Answer:
        """Return how the clip answers to coordinates that are Gaussian [K, g, d], all of a client's in one message.

        The norm of so many coordinates is taken to be what is expected of it.
        """
        if self.length is not None:
            z = mean / std
            expected = std * 2 * _density(z) + mean * (2 * ndtr(z) - 1)
            size = expected.sum((-2, -1), keepdim=True)
            if self.order == 2:
                size = (mean.square() + std.square()).sum((-2, -1), keepdim=True).sqrt()
            factor = (self.length / size).clamp(max=1)
            return Answer(factor * mean, factor.expand_as(mean), torch.zeros_like(mean), std.square())
        if self.bound is None:
            return Answer(mean, torch.ones_like(mean), torch.zeros_like(mean), std.square())
        low, high = (-self.bound - mean) / std, (self.bound - mean) / std
        below, above = ndtr(low), ndtr(-high)
        inside = 1 - below - above
        at_low, at_high = _density(low), _density(high)
        first = self.bound * (above - below) + mean * inside - std * (at_high - at_low)
        square = self.bound**2 * (below + above) + (mean.square() + std.square()) * inside
        square = square - 2 * mean * std * (at_high - at_low) - std.square() * (high * at_high - low * at_low)
        rest = square - first.square() - (inside * std).square()
        return Answer(first, inside, rest.clamp(min=0), std.square())


def _density(z: Tensor) -> Tensor:
    return _DENSITY * (-z.square() / 2).exp()
