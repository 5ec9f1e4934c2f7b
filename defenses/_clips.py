"""Scaling messages down to a norm, shared by the defenses that clip what is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Release
from fglaudit.payloads import payload_type


def clip_messages(value: Tensor, clip: float, order: int = 2) -> Tensor:
    """Return messages [P, ...] scaled down to a norm of this order (L1 or L2) of at most ``clip``."""
    norm = torch.linalg.vector_norm(value.flatten(1), ord=order, dim=1).clamp(min=clip)
    factor: Tensor = clip / norm
    return value * factor.view(-1, *[1] * (value.dim() - 1))


def check_clips(on: tuple[str, ...], clip: tuple[float, ...]) -> None:
    """Raise :class:`FglauditError` unless every payload of ``on`` has a positive clip and none is named twice."""
    if not on or len(set(on)) < len(on) or len(clip) != len(on):
        raise FglauditError(
            f"every payload named in on, once, needs a clip; got on: {list(on)}, clip: {list(clip)}; change one"
        )
    if any(not (value > 0 and math.isfinite(value)) for value in clip):
        raise FglauditError(f"clip must be positive; got {list(clip)}; use e.g. clip: 1.0")
    for name in on:
        payload_type(name)


def not_clippable(named: list[tuple[Release, float]]) -> str | None:
    """Return why a payload cannot be clipped message by message, or None."""
    for release, _ in named:
        if release.payload.ragged or len(fields(release.payload)) != 1:  # type: ignore[arg-type]
            return (
                f"clipping works on payloads of one tensor with one entry per message, which {release.payload.__name__} is not"
            )
    return None


def named_releases(releases: Sequence[Release], on: Sequence[str], clip: Sequence[float]) -> list[tuple[Release, float]]:
    """Return those of ``releases`` whose payload is named in ``on``, each with its clip."""
    clips = dict(zip(on, clip, strict=True))
    return [(release, clips[release.payload.__name__]) for release in releases if release.payload.__name__ in clips]
