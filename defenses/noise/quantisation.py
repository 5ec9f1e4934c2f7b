"""Round what clients send to a few levels: ``2^bits`` evenly spaced ones over the range of each message.

Rounding is stochastic (QSGD, Alistarh et al. 2017): up or down with the probabilities that make it unbiased. A message
is a float32 tensor all the same here, so byte counts do not fall; a real encoder would send ``bits`` per number and two
numbers for the range. Nothing is promised: rounding errors are bounded and average out over rounds.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, Field, Rounded
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import SERVER, MessageBatch, Payload, PayloadName, payload_types
from fglaudit.privacy.strength import check_factor

MOST_BITS = 16


class _Session(DefenseSession):
    def __init__(self, defense: Quantisation) -> None:
        self.payloads = frozenset(payload_types(defense.on))
        self.levels = 2**defense.bits

    def changes(self, payload: type[Payload]) -> bool:
        return payload in self.payloads

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Round what clients send; the server's own messages stay as they are."""
        if not self.changes(type(batch.payload)) or bool((batch.senders == SERVER).all()):
            return batch.payload
        tensors = batch.payload.tensors()
        rounded = {name: self._round(v, rng) if v.is_floating_point() else v for name, v in tensors.items()}
        return type(batch.payload).from_tensors(rounded)

    def facts(self) -> tuple[Fact, ...]:
        return tuple(
            Rounded(Field(name, direction="up"), step=None, center=None, levels=self.levels, stochastic=True)
            for name in sorted(payload.__name__ for payload in self.payloads)
        )

    def _round(self, value: Tensor, rng: torch.Generator) -> Tensor:
        flat = value.flatten(1)
        low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
        step = (high - low) / (self.levels - 1)
        position = (flat - low) / torch.where(step > 0, step, 1)
        draw = torch.rand(flat.shape, generator=rng).to(flat)
        level = (position + draw).floor().clamp(max=self.levels - 1)
        return torch.addcmul(low, step, level).view_as(value)


@dataclass(frozen=True)
class Quantisation(Defense):
    """Round messages stochastically to 2^bits levels each. No epsilon is promised.

    Attributes:
        bits: per number, 1 to 16.
        on: names of the payloads; not ragged ones.
    """

    name: ClassVar[str] = "quantisation"
    shown: ClassVar[tuple[str, ...]] = ("bits",)

    bits: int = 4
    on: tuple[PayloadName, ...] = ("HiddenRepresentations", "Jacobians")

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise FglauditError(f"quantisation needs bits from 1 to {MOST_BITS}; got {self.bits}; change it")
        for payload in payload_types(self.on):
            if payload.ragged:
                raise FglauditError(
                    f"quantisation works message by message; {payload.__name__} has messages of several rows; leave it"
                    " out"
                )

    def unsupported(self, context: Context) -> str | None:
        if not any(release.payload.__name__ in self.on for release in context.releases):
            return (
                f"{context.protocol} sends none of {', '.join(self.on)} with these settings, so there is nothing to"
                f" round{context.sent_words()}"
            )
        return None

    def weakened(self, factor: float) -> Quantisation:
        """Return it with levels ``factor`` times as far apart, or as close as 16 bits have them."""
        check_factor(factor)
        return dataclasses.replace(self, bits=min(MOST_BITS, self.bits + math.ceil(-math.log2(factor))))

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self)
