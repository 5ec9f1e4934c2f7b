"""Clip every message of several payloads and add Gaussian noise, accounted over all payloads and rounds together.

For protocols whose records leave their owner in more than one kind of message per round, as in GFL-APPNP: a node's
features are in its hidden representation, in its Jacobian, and, if it trains, in its model. No bound on the features
bounds any of these, because it would depend on the trained weights; so each message is scaled to L2 norm at most
``clip`` and moves by at most ``2 clip`` whatever replaces the features. With noise of standard deviation
``multiplier x 2 clip`` each message is one Gaussian release with the same multiplier; dp-accounting composes all
releases of one node in one training.

``ModelUpdate``: what is clipped is the model's difference to the global model that was last sent to its sender, and the
noise is added to that difference.

The guarantee is about one node's features, replaced by any others, with edges and labels public. Epsilon is stated
where every message that depends on features is named in ``on``. Without ``ModelUpdate`` it holds for the nodes that do
not train alone, which ``mechanism`` says, and is no figure for "node".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context, Unit, Uploads
from fglaudit.defenses.noise.clips import check_clips, features_of, named_releases, not_bounded_by_clips
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload, PayloadName
from fglaudit.privacy.accounting import Relation, check_budget, compose_all, epsilon_of
from fglaudit.privacy.mechanism import Mechanism, calibrated
from fglaudit.privacy.strength import weaker_budget


class _Session(NoiseSession):
    def __init__(self, defense: JointNoise, context: Context) -> None:
        named = named_releases(context.releases, defense.on, defense.clip)
        times = sum(release.times for release, _ in named)
        noised = {
            release: calibrated(
                "gaussian", clip, Relation.REPLACE, epsilon=defense.epsilon, delta=defense.delta, releases=times
            )
            for release, clip in named
        }
        left_out = [release.payload.__name__ for release in context.releases if release not in noised]
        event = compose_all([mechanism.event(release.times) for release, mechanism in noised.items()])
        parts = ", ".join(f"{r.payload.__name__} (clip {m.clip:g}, sigma {m.scale:.4g})" for r, m in noised.items())
        partly = f"; holds only for nodes that send no {' or '.join(left_out)}" if left_out else ""
        promise = Guarantee(
            mechanism=f"gaussian on {parts}{partly}",
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=None if left_out else epsilon_of(event, defense.delta, Relation.REPLACE),
            delta=defense.delta,
            unit=defense.unit,
            adjacency=Relation.REPLACE.of(features_of(context, defense.unit)),
            relation=Relation.REPLACE,
            releases=times,
        )
        super().__init__(noised, promise)
        self._global: Tensor | None = None
        self._sends_changes = isinstance(context.uploads, Uploads) and context.uploads.changes

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip what clients send and add noise; remember the model that they start from."""
        if isinstance(batch.payload, ModelUpdate) and bool((batch.senders == SERVER).all()):
            self._global = batch.payload.vector
        return super().release(batch, rng)

    def clips_around(self, payload: type[Payload]) -> str:
        return "received" if payload is ModelUpdate and not self._sends_changes else "zero"

    def bounded(self, batch: MessageBatch, value: Tensor, mechanism: Mechanism) -> Tensor:
        """Return the clipped message; of a whole model, the model received plus its clipped change."""
        if not isinstance(batch.payload, ModelUpdate) or self._sends_changes or self._global is None:
            return mechanism.clipped(value)
        start = self._global[batch.senders.to(value.device)]
        return start + mechanism.clipped(value - start)


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
    unit: Unit = "node"
    on: tuple[PayloadName, ...] = ("HiddenRepresentations", "Jacobians", "ModelUpdate")

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_clips(self.on, self.clip)

    def unsupported(self, context: Context) -> str | None:
        named = named_releases(context.releases, self.on, self.clip)
        if not named:
            return (
                f"{context.protocol} sends none of {', '.join(self.on)} with these settings, so noise on them protects"
                f" nothing{context.sent_words()}"
            )
        return next(filter(None, (not_bounded_by_clips(context, release, self.unit) for release, _ in named)), None)

    def weakened(self, factor: float) -> JointNoise:
        """Return it with more epsilon. The clip stays: it scales whole messages, and the noise grows with it."""
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor))

    def bind(self, context: Context) -> DefenseSession:
        if reason := self.unsupported(context):
            raise FglauditError(f"noise cannot be calibrated: {reason}; use another defense or payload")
        return _Session(self, context)
