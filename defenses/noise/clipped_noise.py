"""Clip each message and add Gaussian or Laplace noise: for payloads where a record affects its sender's message alone.

A user's latent ``x_i W_i`` moves with its features as far as its trained weights let it, so no bound on the features
bounds it. What is bounded instead is the message: its values are scaled to norm at most ``clip`` (L2 for Gaussian, L1
for Laplace noise). Whatever replaces the user's features, one message moves by at most ``2 clip``; the noise is
calibrated to that, over all releases of one training.

The guarantee is about one node's features (replaced by any others), with edges and labels public. It covers the whole
training where everything else is computed from the noisy messages (nFedGNN: the server's gradients, and with them the
next latents); where other messages depend on the features too (CNFGNN's weights) no epsilon is stated.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from fglaudit.context import Context, Unit
from fglaudit.defenses.noise.clips import features_of, not_bounded_by_clips
from fglaudit.defenses.noise.noisy_messages import NoiseSession, release_named
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import PayloadName, payload_type
from fglaudit.privacy.accounting import Relation, check_budget
from fglaudit.privacy.mechanism import Distribution, calibrated, check_clip
from fglaudit.privacy.strength import weaker_budget


@dataclass(frozen=True)
class ClippedNoise(Defense):
    """Clip every message of the payload ``on`` and add noise calibrated over all rounds.

    Attributes:
        mechanism: "gaussian" or "laplace".
        epsilon, delta: the guarantee over the whole training; delta = 0 only for Laplace noise.
        clip: norm to which a message is scaled down, L2 for Gaussian and L1 for Laplace noise.
        unit: what one record is.
        on: name of the payload that gets the noise.
    """

    name: ClassVar[str] = "clipped-noise"
    shown: ClassVar[tuple[str, ...]] = ("mechanism", "epsilon", "clip")

    mechanism: Distribution = "gaussian"
    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    unit: Unit = "node"
    on: PayloadName = "Latents"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, pure=self.mechanism == "laplace")
        check_clip(self.clip)
        payload_type(self.on)

    def unsupported(self, context: Context) -> str | None:
        release = release_named(context, self.on)
        if release is None:
            return (
                f"{context.protocol} sends no {self.on} with these settings, so noise on it protects nothing"
                f"{context.sent_words()}"
            )
        return not_bounded_by_clips(context, release, self.unit)

    def weakened(self, factor: float) -> ClippedNoise:
        """Return it with more epsilon. The clip stays: it scales whole messages, and the noise grows with it."""
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        release, reason = release_named(context, self.on), self.unsupported(context)
        if reason is not None or release is None:
            raise FglauditError(f"noise cannot be calibrated: {reason}; use another defense or payload")
        mechanism = calibrated(
            self.mechanism, self.clip, Relation.REPLACE, epsilon=self.epsilon, delta=self.delta, releases=release.times
        )
        norm = mechanism.norm.upper()
        promise = Guarantee(
            mechanism=(
                f"{self.mechanism} scale={mechanism.scale:.4g} on {self.on}, clipped to {norm} norm {self.clip:g}"
            ),
            epsilon_claimed=self.epsilon,
            epsilon_accounted=mechanism.epsilon(self.delta, release.times) if release.covers_training else None,
            delta=self.delta,
            unit=self.unit,
            adjacency=Relation.REPLACE.of(features_of(context, self.unit)),
            relation=Relation.REPLACE,
            releases=release.times,
        )
        return NoiseSession({release: mechanism}, promise)
