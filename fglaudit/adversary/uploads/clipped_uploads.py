"""How FedGT's uploads depend on their values before clip and noise: linear response (Bussgang's theorem)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import ndtr

from fglaudit.adversary.clipping import KnownClip
from fglaudit.payloads import Payload
from fglaudit.view import View

_DENSITY = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class LinearResponse:
    """Mean, linear dependence and residual of clipped Gaussian coordinates mu.

    Attributes:
        mean: of ``clip(mu)``, shaped as mu, like the others.
        slope: regression coefficient of ``clip(mu)`` on mu.
        rest: variance of ``clip(mu)`` that is uncorrelated with mu.
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
        bound: of every coordinate, None where coordinates are not clipped.
        length: of the norm of a message, None where messages are not scaled down.
        order: of that norm, 1 or 2.
    """

    bound: float | None = None
    length: float | None = None
    order: int = 1

    @staticmethod
    def of(view: View, payload: type[Payload]) -> UploadClip:
        """Return the clip of what clients upload that the defense states."""
        clip = KnownClip.of(view, payload, direction="up")
        if clip is None:
            return UploadClip()
        return (
            UploadClip(bound=clip.bound)
            if clip.order == math.inf
            else UploadClip(length=clip.bound, order=int(clip.order))
        )

    def response(self, mean: Tensor, std: Tensor) -> LinearResponse:
        """Return the linear response of clipped Gaussian coordinates.

        The norm of a message, all coordinates of a client, is replaced by its expectation.

        Args:
            mean, std: of the coordinates [K, g, d].
        """
        if self.length is not None:
            z = mean / std
            expected = std * 2 * _density(z) + mean * (2 * ndtr(z) - 1)
            size = expected.sum((-2, -1), keepdim=True)
            if self.order == 2:
                size = (mean.square() + std.square()).sum((-2, -1), keepdim=True).sqrt()
            factor = (self.length / size).clamp(max=1)
            return LinearResponse(factor * mean, factor.expand_as(mean), torch.zeros_like(mean), std.square())
        if self.bound is None:
            return LinearResponse(mean, torch.ones_like(mean), torch.zeros_like(mean), std.square())
        low, high = (-self.bound - mean) / std, (self.bound - mean) / std
        below, above = ndtr(low), ndtr(-high)
        inside = 1 - below - above
        at_low, at_high = _density(low), _density(high)
        first = self.bound * (above - below) + mean * inside - std * (at_high - at_low)
        square = self.bound**2 * (below + above) + (mean.square() + std.square()) * inside
        square = square - 2 * mean * std * (at_high - at_low) - std.square() * (high * at_high - low * at_low)
        rest = square - first.square() - (inside * std).square()
        return LinearResponse(first, inside, rest.clamp(min=0), std.square())


def _density(z: Tensor) -> Tensor:
    return _DENSITY * (-z.square() / 2).exp()
