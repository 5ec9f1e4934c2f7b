"""Clip each message and add Gaussian or Laplace noise to it: for payloads that one record enters through its own sender alone.

A user's latent ``x_i W_i`` moves with its features as far as its trained weights let it, so no bound on the features bounds it.
What is bounded instead is the message: its values are scaled to norm at most ``clip`` (L2 for Gaussian, L1 for Laplace noise).
Whatever replaces the user's features, one message moves by at most ``2 clip``; the noise is calibrated to that, over all releases of
one training, by dp-accounting. Clip, sensitivity and noise are tied together here and nowhere else.

The guarantee is about one node's features (replaced by any others), with edges and labels public. It covers the whole training where
everything else is computed from the noisy messages (nFedGNN: the server's gradients, and with them the next latents); where other
messages depend on the features too (CNFGNN's weights) no epsilon is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.accounting import (
    check_budget,
    epsilon_of,
    gaussian_event,
    gaussian_noise_multiplier,
    laplace_epsilon,
    laplace_noise_multiplier,
)
from fglaudit.defenses._clips import clip_messages
from fglaudit.errors import FglauditError, unknown
from fglaudit.interfaces import Context, Defense, DefenseSession, Guarantee, Release
from fglaudit.payloads import SERVER, MessageBatch, Payload, payload_type
from fglaudit.view import Noise

NORMS = {"gaussian": 2, "laplace": 1}
"""Mechanisms, and the norm in which each one's sensitivity is measured."""


class _Session(DefenseSession):
    def __init__(self, defense: ClippedNoise, release: Release) -> None:
        self.defense = defense
        self.released = release
        self.sensitivity = 2 * defense.clip
        calibrate = gaussian_noise_multiplier if defense.mechanism == "gaussian" else laplace_noise_multiplier
        self.multiplier = calibrate(defense.epsilon, defense.delta, release.times)
        self.scale = self.multiplier * self.sensitivity

    def changes(self, payload: type[Payload]) -> bool:
        return payload is self.released.payload

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip and disturb what clients send; the server's own messages stay as they are."""
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        ((name, value),) = batch.payload.tensors().items()
        clipped = clip_messages(value, self.defense.clip, NORMS[self.defense.mechanism])
        noise = self.scale * _standard(self.defense.mechanism, value.shape, rng)
        return type(batch.payload).from_tensors({name: clipped + noise.to(clipped)})

    def noise(self) -> Mapping[str, Noise]:
        return {self.released.payload.__name__: Noise(self.defense.mechanism, self.scale)}

    def parameters(self) -> Mapping[str, Any]:
        return {"scale": self.scale, "sensitivity": self.sensitivity, "clip_norm": f"L{NORMS[self.defense.mechanism]}"}

    def guarantee(self) -> Guarantee:
        defense, times = self.defense, self.released.times
        if defense.mechanism == "gaussian":
            epsilon = epsilon_of(gaussian_event(self.multiplier, times), defense.delta, scale=defense.epsilon)
        else:
            epsilon = laplace_epsilon(self.multiplier, times, defense.delta)
        norm = f"L{NORMS[defense.mechanism]}"
        return Guarantee(
            mechanism=f"{defense.mechanism} scale={self.scale:.4g} on {defense.on}, clipped to {norm} norm {defense.clip:g}",
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=epsilon if self.released.covers_training else None,
            delta=defense.delta,
            unit=defense.unit,
            adjacency="one node's features replaced; edges and labels public",
            releases=times,
        )


@dataclass(frozen=True)
class ClippedNoise(Defense):
    """Clip every message of the payload ``on`` and add noise calibrated over all rounds.

    Attributes:
        mechanism: "gaussian" or "laplace".
        epsilon, delta: the guarantee over the whole training.
        clip: norm to which a message is scaled down, L2 for Gaussian and L1 for Laplace noise.
        unit: what one record is.
        on: name of the payload that gets the noise.
    """

    name: ClassVar[str] = "clipped-noise"
    shown: ClassVar[tuple[str, ...]] = ("mechanism", "epsilon", "clip")

    mechanism: str = "gaussian"
    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    unit: str = "node"
    on: str = "Latents"

    def __post_init__(self) -> None:
        if self.mechanism not in NORMS:
            raise unknown("mechanism", self.mechanism, NORMS)
        check_budget(self.epsilon, self.delta)
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise FglauditError(f"clip must be positive; got {self.clip}; use e.g. clip: 1.0")
        payload_type(self.on)

    def unsupported(self, context: Context) -> str | None:
        release = self._release(context)
        if release is None:
            return f"{context.protocol} sends no {self.on} with these settings, so noise on it protects nothing"
        if release.payload.ragged or len(fields(release.payload)) != 1:  # type: ignore[arg-type]
            return f"clipping works on payloads of one tensor with one entry per message, which {self.on} is not"
        if not release.one_message:
            return f"one record may enter several messages of one release of {self.on}; a clip per message does not bound them"
        if release.unit != self.unit:
            return f"{context.protocol} states how {self.on} depends on one {release.unit}, not on one {self.unit}"
        return None

    def bind(self, context: Context) -> DefenseSession:
        release, reason = self._release(context), self.unsupported(context)
        if reason is not None or release is None:
            raise FglauditError(f"noise cannot be calibrated: {reason}; use another defense or payload")
        return _Session(self, release)

    def _release(self, context: Context) -> Release | None:
        return next((r for r in context.releases if r.payload.__name__ == self.on), None)


def _standard(mechanism: str, shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Return noise of scale 1 in float64; Laplace as the difference of two exponentials."""
    if mechanism == "gaussian":
        return torch.randn(shape, generator=rng, dtype=torch.float64)
    first, second = (torch.empty(shape, dtype=torch.float64).exponential_(generator=rng) for _ in range(2))
    return first - second
