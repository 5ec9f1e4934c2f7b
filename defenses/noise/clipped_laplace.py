"""Local differential privacy as in FedGT (section 4.3): uploads are sent as ``clip(g, delta) + Laplace(0, lambda)``.

The paper does not say what the clip is. ``norm: elementwise`` (default) clips every coordinate to [-delta, delta];
``norm: l1`` scales the whole vector of one message down to L1 norm delta. The epsilon that the paper claims,
``2 delta / lambda``, is one coordinate's of one round in the first case and one round's in the second: n coordinates
and T rounds cost ``n T 2 delta / lambda`` and ``T 2 delta / lambda``. Coordinates are counted as they are sent.

The record is the features of all nodes of one client, replaced by any others: a clip bounds no smaller unit any better,
since one node may move every coordinate to the other end. Where clients overlap, others hold copies of these rows,
which enter messages of their own: the record is the copies of one client alone. The guarantee covers training only
where everything that clients upload about features gets the noise; otherwise no epsilon is stated, and the mechanism's
description names what was left in the clear. What the server sends is computed from noisy uploads.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Context
from fglaudit.defenses.noise.clips import features_of, not_bounded_by_clips
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, Payload, PayloadName, payload_types
from fglaudit.privacy.accounting import Relation, compose_all, epsilon_of
from fglaudit.privacy.mechanism import ClipNorm, Mechanism, check_norm
from fglaudit.privacy.strength import check_factor


class _Session(NoiseSession):
    def __init__(self, defense: ClippedLaplace, context: Context) -> None:
        mechanism = defense.mechanism
        super().__init__({r: mechanism for r in context.releases if r.payload.__name__ in defense.on}, Guarantee())
        self.defense = defense
        self.mechanism = mechanism
        self.left_open = context.left_open(defense.on)
        self.record = features_of(context, "client")
        self.coordinates: dict[type[Payload], int] = {}
        self.sent: dict[type[Payload], int] = {}

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip what clients upload, add noise, and count it."""
        released = super().release(batch, rng)
        if released is not batch.payload:
            kind = type(released)
            self.coordinates[kind] = sum(math.prod(value.shape[1:]) for value in released.tensors().values())
            self.sent[kind] = self.sent.get(kind, 0) + int(torch.bincount(batch.senders).max().item())
        return released

    def _epsilon(self, *kinds: type[Payload]) -> float:
        spent = compose_all([self.mechanism.event(self.sent[kind], self.coordinates[kind]) for kind in kinds])
        return epsilon_of(spent, self.defense.delta, Relation.REPLACE)

    def guarantee(self) -> Guarantee:
        defense = self.defense
        words = ", ".join(f"{kind.__name__} alone: epsilon {self._epsilon(kind):.4g}" for kind in self.sent)
        covered = not self.left_open and set(self.sent) == set(self.noised)
        return Guarantee(
            mechanism=f"laplace scale={defense.scale:g}, {defense.norm} clip {defense.clip:g}; {words}{self.left_open}",
            epsilon_claimed=2 * defense.clip / defense.scale,
            epsilon_accounted=self._epsilon(*self.sent) if covered else None,
            delta=defense.delta,
            unit="client",
            adjacency=Relation.REPLACE.of(self.record),
            relation=Relation.REPLACE,
            releases=max(self.sent.values(), default=None),
        )


@dataclass(frozen=True)
class ClippedLaplace(Defense):
    """Clip what clients upload and add Laplace noise to every coordinate; defaults are FedGT's.

    Attributes:
        clip: the paper's delta: of every coordinate, or of the L1 norm.
        scale: the paper's lambda.
        norm: "elementwise" or "l1".
        on: names of the payloads that get the noise, each with the same clip and scale.
        delta: of the accounted epsilon; 0 adds up pure epsilons.
    """

    name: ClassVar[str] = "clipped-laplace"
    shown: ClassVar[tuple[str, ...]] = ("clip", "scale", "norm", "on")

    clip: float = 0.002
    scale: float = 0.001
    norm: ClipNorm = "elementwise"
    on: tuple[PayloadName, ...] = ("GlobalNodes",)
    delta: float = 0.0

    def __post_init__(self) -> None:
        for field, symbol in (("clip", "delta"), ("scale", "lambda")):
            value = getattr(self, field)
            if not (value > 0 and math.isfinite(value)):
                raise FglauditError(
                    f"clipped-laplace needs {field} (the paper's {symbol}) > 0; got {value:g}; use e.g. 0.002 and"
                    " 0.001, or the defense `none` for no noise"
                )
        check_norm("laplace", self.norm)
        if not 0 <= self.delta < 1:
            raise FglauditError(f"delta of the accounted epsilon lies in [0, 1); got {self.delta:g}; 0 is pure")
        if not self.on:
            raise FglauditError("clipped-laplace needs at least one payload in on; got none; use on: [GlobalNodes]")
        payload_types(self.on)

    @property
    def mechanism(self) -> Mechanism:
        """Clip and noise of every message, and what they cost where all features of one client are replaced."""
        return Mechanism("laplace", self.norm, self.clip, Relation.REPLACE, self.scale / self.clip)

    def unsupported(self, context: Context) -> str | None:
        known = [release.payload.__name__ for release in context.releases]
        missing = [name for name in self.on if name not in known]
        if missing:
            return (
                f"{context.protocol} does not list {missing[0]} among the payloads through which features leave a"
                " client"
            )
        named = [release for release in context.releases if release.payload.__name__ in self.on]
        return next(filter(None, (not_bounded_by_clips(context, release, "client") for release in named)), None)

    def weakened(self, factor: float) -> ClippedLaplace:
        """Return it with less noise and a wider clip, which cuts single coordinates unless ``norm: l1``."""
        check_factor(factor)
        return dataclasses.replace(self, clip=self.clip / factor, scale=self.scale * factor)

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self, context)
