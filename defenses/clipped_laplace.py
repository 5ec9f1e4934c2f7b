"""Local differential privacy as FedGT uses it (section 4.3): ``clip(g, delta) + Laplace(0, lambda)`` on what clients upload.

The paper does not say what the clip is. ``norm: elementwise`` (default) cuts every coordinate to [-delta, delta]; ``norm: l1`` scales
the whole vector of one message down to L1 norm delta. The epsilon that the paper claims, ``2 delta / lambda``, is one coordinate's of one
round in the first case and one round's in the second; ``fglaudit.laplace_accounting`` composes what was really released, counted as it
is sent.

The guarantee covers training only where everything that clients upload gets the noise; otherwise no epsilon is stated, and the
mechanism's description names what was left in the clear. What the server sends is computed from noisy uploads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.defenses._clips import clip_messages
from fglaudit.errors import FglauditError, unknown
from fglaudit.interfaces import Context, Defense, DefenseSession, Guarantee
from fglaudit.laplace_accounting import claimed_epsilon, laplace_epsilon
from fglaudit.payloads import SERVER, MessageBatch, Payload, payload_type
from fglaudit.view import Noise

NORMS = ("elementwise", "l1")


def laplace_noise(shape: torch.Size, scale: float, rng: torch.Generator) -> Tensor:
    """Draw Laplace noise, float64, by its inverse distribution function."""
    uniform = torch.rand(shape, generator=rng, dtype=torch.float64) - 0.5
    tail = (1 - 2 * uniform.abs()).clamp(min=torch.finfo(torch.float64).tiny)
    return -scale * uniform.sign() * tail.log()


def clip(values: Tensor, bound: float, norm: str) -> Tensor:
    """Return ``values`` [P, ...] with coordinates in [-bound, bound], or with an L1 norm of at most ``bound`` per message."""
    if norm == "elementwise":
        return values.clamp(-bound, bound)
    return clip_messages(values, bound, order=1)


class _Session(DefenseSession):
    def __init__(self, defense: ClippedLaplace, context: Context) -> None:
        self.defense = defense
        self.on = {payload_type(name) for name in defense.on}
        self.open = sorted({r.payload.__name__ for r in context.releases} - set(defense.on))
        self.coordinates: dict[str, int] = {}
        self.releases: dict[str, int] = {}

    def changes(self, payload: type[Payload]) -> bool:
        return payload in self.on

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Clip and add noise to what clients send."""
        kind, defense = type(batch.payload), self.defense
        uploads = batch.senders != SERVER
        if kind not in self.on or not bool(uploads.any()):
            return batch.payload
        defended = {}
        for name, value in batch.payload.tensors().items():
            mask = uploads.to(value.device).view(-1, *[1] * (value.dim() - 1))
            noisy = clip(value, defense.clip, defense.norm) + laplace_noise(value.shape, defense.scale, rng).to(value)
            defended[name] = torch.where(mask, noisy, value)
        self.coordinates[kind.__name__] = sum(math.prod(v.shape[1:]) for v in defended.values())
        most = int(torch.bincount(batch.senders[uploads]).max().item())
        self.releases[kind.__name__] = self.releases.get(kind.__name__, 0) + most
        return kind.from_tensors(defended)

    def noise(self) -> Mapping[str, Noise]:
        return {name: Noise("laplace", self.defense.scale) for name in self.defense.on}

    def parameters(self) -> Mapping[str, Any]:
        """What the clip is, and the epsilon of each defended payload over all rounds, as far as released by now."""
        clip_norm = "L1" if self.defense.norm == "l1" else self.defense.norm
        return {"clip_norm": clip_norm, **{f"epsilon {name}": self._epsilon(name) for name in self.releases}}

    def _epsilon(self, name: str) -> float:
        defense = self.defense
        return laplace_epsilon(
            defense.clip,
            defense.scale,
            self.coordinates[name],
            self.releases[name],
            elementwise=defense.norm == "elementwise",
            delta=defense.delta,
        )

    def guarantee(self) -> Guarantee:
        defense = self.defense
        spent = {name: self._epsilon(name) for name in self.releases}
        words = ", ".join(f"{name} alone: epsilon {value:.4g}" for name, value in spent.items())
        left = f"; {', '.join(self.open)} in the clear, so nothing bounds the whole" if self.open else ""
        covered = not self.open and set(spent) == set(defense.on)
        return Guarantee(
            mechanism=f"laplace scale={defense.scale:g}, {defense.norm} clip {defense.clip:g}; {words}{left}",
            epsilon_claimed=claimed_epsilon(defense.clip, defense.scale),
            epsilon_accounted=sum(spent.values()) if covered else None,
            delta=defense.delta * len(spent) if covered else defense.delta,
            unit="client",
            adjacency="all that one client holds replaced by anything else",
            releases=max(self.releases.values(), default=None),
        )


@dataclass(frozen=True)
class ClippedLaplace(Defense):
    """Clip what clients upload and add Laplace noise to every coordinate; defaults are FedGT's.

    Attributes:
        clip: the paper's delta: of every coordinate, or of the L1 norm.
        scale: the paper's lambda.
        norm: "elementwise" or "l1".
        on: names of the payloads that get the noise, each with the same clip and scale.
        delta: of the accounted epsilon, per payload; 0 composes pure epsilons.
    """

    name: ClassVar[str] = "clipped-laplace"
    shown: ClassVar[tuple[str, ...]] = ("clip", "scale", "norm", "on")

    clip: float = 0.002
    scale: float = 0.001
    norm: str = "elementwise"
    on: tuple[str, ...] = ("GlobalNodes",)
    delta: float = 0.0

    def __post_init__(self) -> None:
        for field, symbol in (("clip", "delta"), ("scale", "lambda")):
            value = getattr(self, field)
            if not (value > 0 and math.isfinite(value)):
                raise FglauditError(
                    f"clipped-laplace needs {field} (the paper's {symbol}) > 0; got {value:g}; use e.g. 0.002 and 0.001, "
                    "or the defense `none` for no noise"
                )
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        if not 0 <= self.delta < 1:
            raise FglauditError(f"delta of the accounted epsilon lies in [0, 1); got {self.delta:g}; 0 is pure")
        if not self.on:
            raise FglauditError("clipped-laplace needs at least one payload in on; got none; use on: [GlobalNodes]")
        for name in self.on:
            payload_type(name)

    def unsupported(self, context: Context) -> str | None:
        known = [release.payload.__name__ for release in context.releases]
        missing = [name for name in self.on if name not in known]
        if missing:
            return f"{context.protocol} does not list {missing[0]} among the payloads through which features leave a client"
        return None

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self, context)
