"""Hidden representations as a defense clips them before they are sent, and the derivative of what is left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip


def clipped(values: Tensor, clip: KnownClip | None) -> Tensor:
    """Return ``values`` [..., C] as they are sent; each of the last axis is a message."""
    if clip is None:
        return values
    if clip.order == math.inf:
        return values.clamp(-clip.bound, clip.bound)
    shorter: Tensor = values * _factor(values, clip)
    return shorter


def clipped_slope(values: Tensor, slope: Tensor, clip: KnownClip | None) -> Tensor:
    """Return the derivative [..., C, F] of :func:`clipped` where that of ``values`` [..., C] is ``slope``."""
    if clip is None:
        return slope
    if clip.order == math.inf:
        return slope * (values.abs() < clip.bound)[..., None]
    factor = _factor(values, clip)
    outward = values.sign() if clip.order == 1 else values / _length(values, clip)
    # Of a message on the bound only the direction is left: the share along it is gone.
    along = torch.einsum("...c,...cf->...f", outward, slope)[..., None, :]
    lost = (values / _length(values, clip))[..., None] * along
    left: Tensor = factor[..., None] * torch.where(factor[..., None] < 1, slope - lost, slope)
    return left


def unclipped(values: Tensor, clip: KnownClip | None, std: float) -> Tensor:
    """Return which of ``values`` [..., C], received with noise of ``std``, the clip has surely left as they were."""
    if clip is None:
        return torch.ones_like(values, dtype=torch.bool)
    if clip.order == math.inf:
        return clip.unclipped(values.reshape(-1, 1), std).view(values.shape)
    return clip.unclipped(values.flatten(0, -2), std).view(*values.shape[:-1], 1).expand(values.shape)


def _length(values: Tensor, clip: KnownClip) -> Tensor:
    length: Tensor = values.norm(p=clip.order, dim=-1, keepdim=True)
    return length.clamp(min=1e-300)


def _factor(values: Tensor, clip: KnownClip) -> Tensor:
    factor: Tensor = (clip.bound / _length(values, clip)).clamp(max=1.0)
    return factor
