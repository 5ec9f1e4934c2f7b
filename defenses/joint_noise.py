"""Clip every message of several payloads and add Gaussian noise to it, accounted over all of them and all rounds together.

For protocols whose records leave their owner in more than one kind of message per round, as in GFL-APPNP: a node's features are in its
hidden representation, in its Jacobian, and, if it trains, in its model. No bound on the features bounds any of these, because it
would depend on the trained weights; so each message is scaled to L2 norm at most ``clip`` and moves by at most ``2 clip`` whatever
replaces the features. With noise of standard deviation ``multiplier x 2 clip`` each message is one Gaussian release with the same
multiplier; dp-accounting composes all releases of one node in one training.

``ModelUpdate``: what is clipped is the model's difference to the global model that was last sent to its sender, and the noise is added to
that difference.

The guarantee is about one node's features, replaced by any others, with edges and labels public. Epsilon is stated where every message
that depends on features is named in ``on``. Without ``ModelUpdate`` it holds for the nodes that do not train alone, which ``mechanism``
says, and is no figure for "node".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.accounting import accounted_noise_multiplier, check_budget
from fglaudit.defenses._clips import check_clips, clip_messages, named_releases, not_clippable
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Context, Defense, DefenseSession, Guarantee, Release
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.view import Noise


class _Session(DefenseSession):
    def __init__(self, defense: JointNoise, releases: tuple[Release, ...]) -> None:
        self.defense = defense
        self.noised = {r.payload: clip for r, clip in named_releases(releases, defense.on, defense.clip)}
        self.left_out = [r.payload.__name__ for r in releases if r.payload not in self.noised]
        self.times = sum(r.times for r, _ in named_releases(releases, defense.on, defense.clip))
        self.multiplier, self.accounted = accounted_noise_multiplier(defense.epsilon, defense.delta, self.times)
        self._global: Tensor | None = None

    def changes(self, payload: type[Payload]) -> bool:
        return payload in self.noised

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip and disturb what clients send; the server's own messages stay as they are."""
        kind = type(batch.payload)
        if kind not in self.noised:
            return batch.payload
        ((name, value),) = batch.payload.tensors().items()
        if bool((batch.senders == SERVER).all()):
            if kind is ModelUpdate:
                self._global = value
            return batch.payload
        start = torch.zeros_like(value)
        if kind is ModelUpdate and self._global is not None:
            start = self._global[batch.senders.to(value.device)]
        clipped = clip_messages(value - start, self.noised[kind])
        noise = torch.randn(value.shape, generator=rng).to(value)
        return kind.from_tensors({name: start + clipped + self._sigma(kind) * noise})

    def noise(self) -> Mapping[str, Noise]:
        return {payload.__name__: Noise("gaussian", self._sigma(payload)) for payload in self.noised}

    def parameters(self) -> Mapping[str, Any]:
        sigma = {p.__name__: self._sigma(p) for p in self.noised}
        return {"noise_multiplier": self.multiplier, "sigma": sigma, "clip_norm": "L2"}

    def guarantee(self) -> Guarantee:
        parts = ", ".join(f"{p.__name__} (clip {clip:g}, sigma {self._sigma(p):.4g})" for p, clip in self.noised.items())
        partly = f"; holds only for nodes that send no {' or '.join(self.left_out)}" if self.left_out else ""
        return Guarantee(
            mechanism=f"gaussian on {parts}{partly}",
            epsilon_claimed=self.defense.epsilon,
            epsilon_accounted=None if self.left_out else self.accounted,
            delta=self.defense.delta,
            unit=self.defense.unit,
            adjacency="one node's features replaced; edges and labels public",
            releases=self.times,
        )

    def _sigma(self, payload: type[Payload]) -> float:
        return self.multiplier * 2 * self.noised[payload]


@dataclass(frozen=True)
class JointNoise(Defense):
    """Clip the messages of all payloads ``on`` and add noise calibrated over all of them and all rounds.

    Attributes:
        epsilon, delta: the guarantee over the whole training.
        clip: L2 norm to which a message is scaled down, one for each entry of ``on``.
        unit: what one record is.
        on: names of the payloads that get noise; those that the protocol does not send are left out.
    """

    name: ClassVar[str] = "joint-noise"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "clip")

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: tuple[float, ...] = (1.0, 1.0, 1.0)
    unit: str = "node"
    on: tuple[str, ...] = ("HiddenRepresentations", "Jacobians", "ModelUpdate")

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_clips(self.on, self.clip)

    def unsupported(self, context: Context) -> str | None:
        named = named_releases(context.releases, self.on, self.clip)
        if not named:
            return (
                f"{context.protocol} sends none of {', '.join(self.on)} with these settings, so noise on them protects nothing"
            )
        if why := not_clippable(named):
            return why
        other = next((r for r, _ in named if r.unit != self.unit), None)
        if other is not None:
            return f"{context.protocol} states how {other.payload.__name__} depends on one {other.unit}, not on one {self.unit}"
        return None

    def bind(self, context: Context) -> DefenseSession:
        if reason := self.unsupported(context):
            raise FglauditError(f"noise cannot be calibrated: {reason}; use another defense or payload")
        return _Session(self, context.releases)
