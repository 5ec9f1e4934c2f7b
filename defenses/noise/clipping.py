"""Clip messages without adding noise: every message of the payloads ``on`` is scaled down to L2 norm at most ``clip``.

It bounds how far one message can move the receiver and is half of what a differentially private mechanism needs; it
promises nothing by itself: a scaled Jacobian shows the same features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Context
from fglaudit.defenses.noise.clips import check_clips, named_releases, not_clippable
from fglaudit.errors import FglauditError
from fglaudit.facts import Clipped, Fact, Field
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload, PayloadName
from fglaudit.privacy.mechanism import clip_messages
from fglaudit.privacy.strength import check_factor


class _Session(DefenseSession):
    def __init__(self, clips: Mapping[type[Payload], float]) -> None:
        self.clips = clips

    def changes(self, payload: type[Payload]) -> bool:
        return payload in self.clips

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip what clients send; the server's own messages stay as they are."""
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        ((name, value),) = batch.payload.tensors().items()
        return type(batch.payload).from_tensors({name: clip_messages(value, self.clips[type(batch.payload)])})

    def facts(self) -> tuple[Fact, ...]:
        return tuple(Clipped(Field(p.__name__, direction="up"), "L2", clip) for p, clip in self.clips.items())


@dataclass(frozen=True)
class Clipping(Defense):
    """Scale every message of some payloads down to a norm. No epsilon is promised.

    Attributes:
        clip: L2 norm, one for each entry of ``on``.
        on: names of the payloads; those that the protocol does not send are left out.
    """

    name: ClassVar[str] = "clipping"
    shown: ClassVar[tuple[str, ...]] = ("clip",)

    clip: tuple[float, ...] = (1.0, 1.0)
    on: tuple[PayloadName, ...] = ("HiddenRepresentations", "Jacobians")

    def __post_init__(self) -> None:
        check_clips(self.on, self.clip)

    def unsupported(self, context: Context) -> str | None:
        named = named_releases(context.releases, self.on, self.clip)
        if not named:
            return (
                f"{context.protocol} sends none of {', '.join(self.on)} with these settings, so there is nothing to"
                f" clip{context.sent_words()}"
            )
        return next(filter(None, (not_clippable(release) for release, _ in named)), None)

    def weakened(self, factor: float) -> Clipping:
        """Return it with wider clips."""
        check_factor(factor)
        return dataclasses.replace(self, clip=tuple(clip / factor for clip in self.clip))

    def bind(self, context: Context) -> DefenseSession:
        if reason := self.unsupported(context):
            raise FglauditError(f"clipping does not apply: {reason}; use another defense or payload")
        return _Session({r.payload: clip for r, clip in named_releases(context.releases, self.on, self.clip)})
