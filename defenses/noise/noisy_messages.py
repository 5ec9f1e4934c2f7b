"""Noise on what is sent, shared by the defenses that add it: which messages get it, and what is published about it.

Each defense decides what a message is before the noise: clipped, or made of clipped rows. Scales and epsilons are those
of :mod:`fglaudit.privacy.mechanism`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context, Release
from fglaudit.facts import Fact, Field
from fglaudit.interfaces import DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.mechanism import Mechanism, clip_fact, noise_fact


class NoiseSession(DefenseSession):
    """Clips every message of some payloads and adds noise to it.

    Args:
        noised: the releases that get noise, each with its mechanism.
        promise: what is guaranteed.
        parameters: calibrated values that are published beside the scale of the noise.

    Attributes:
        clips_messages: whether :meth:`bounded` clips each message.
    """

    clips_messages: ClassVar[bool] = True

    def __init__(self, noised: Mapping[Release, Mechanism], promise: Guarantee) -> None:
        self.noised = {release.payload: (release, mechanism) for release, mechanism in noised.items()}
        self._promise = promise

    def changes(self, payload: type[Payload]) -> bool:
        return payload in self.noised

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip what depends on features and add noise, at the party that makes it; forwarded payloads do not change."""
        kind = type(batch.payload)
        if kind not in self.noised:
            return batch.payload
        release, mechanism = self.noised[kind]
        if bool((batch.senders == SERVER).all()) is not release.by_server:
            return batch.payload
        sent = {}
        for name, value in batch.payload.tensors().items():
            noisy = name in release.fields if release.fields else value.is_floating_point()
            sent[name] = mechanism.with_noise(self.bounded(batch, value, mechanism), rng) if noisy else value
        return kind.from_tensors(sent)

    def bounded(self, batch: MessageBatch, value: Tensor, mechanism: Mechanism) -> Tensor:
        """Return a field of ``batch`` [P, ...] of which one record moves no more than the mechanism's sensitivity."""
        return mechanism.clipped(value)

    def facts(self) -> tuple[Fact, ...]:
        """Of every noised field: the clip of each message, if there is one, then the noise."""
        found: list[Fact] = []
        for payload, (release, mechanism) in self.noised.items():
            for name in release.fields or ("",):
                target = Field(payload.__name__, name, "down" if release.by_server else "up")
                if self.clips_messages:
                    found.append(clip_fact(mechanism, target, around=self.clips_around(payload)))
                found.append(noise_fact(mechanism, target))
        return tuple(found)

    def clips_around(self, payload: type[Payload]) -> str:
        """Return what a message's clip is around: see :class:`fglaudit.facts.Clipped`."""
        return "zero"

    def guarantee(self) -> Guarantee:
        return self._promise


def release_named(context: Context, payload: str) -> Release | None:
    """Return what the protocol states of the payload called so, None if it sends none."""
    return next((release for release in context.releases if release.payload.__name__ == payload), None)
