"""Gaussian mechanism on a feature-bearing payload, calibrated jointly over everything one node's features enter.

Clip, sensitivity and noise are tied together here and nowhere else: every feature row is scaled to L2 norm at most
``clip`` before anything is computed from it; the protocol states how far a row of norm 1 moves all messages of one release
together (``Release.gain``, a bound on the column norms of the aggregation matrix); the noise is calibrated to ``gain x clip``
over all releases. The guarantee is about one node's feature row (zeroed out or not), with edges and labels public.

Who adds the noise: the clients to what they send; but where a payload is made by the server from rows that it received in the clear
(``Release.by_server``: FedGAT's matrices and vectors), the server, which is then trusted, and the guarantee holds against clients
alone. Fields that do not depend on features (``Release.fields``: parts of FedGAT's masks) get none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fglaudit.accounting import accounted_noise_multiplier, check_budget
from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Context, Defense, DefenseSession, Guarantee, Release
from fglaudit.payloads import SERVER, MessageBatch, Payload, payload_type
from fglaudit.view import Noise


class _Session(DefenseSession):
    def __init__(self, defense: Gaussian, release: Release, gain: float) -> None:
        self.defense = defense
        self.released = release
        self.sensitivity = gain * defense.clip
        self.multiplier, self.accounted = accounted_noise_multiplier(defense.epsilon, defense.delta, release.times)
        self.sigma = self.multiplier * self.sensitivity

    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Scale every feature row to norm at most ``clip``."""
        norm = client.x.norm(dim=-1, keepdim=True)
        return dataclasses.replace(client, x=client.x * (self.defense.clip / norm.clamp(min=self.defense.clip)))

    def changes(self, payload: type[Payload]) -> bool:
        return payload is self.released.payload

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Add noise to the fields that depend on features; the server forwards what clients made noisy as it is."""
        from_server = bool((batch.senders == SERVER).all())
        if not self.changes(type(batch.payload)) or from_server is not self.released.by_server:
            return batch.payload
        noisy = {}
        for name, value in batch.payload.tensors().items():
            if name in self.released.fields if self.released.fields else value.is_floating_point():
                noise = torch.randn(value.shape, generator=rng, dtype=torch.float32)
                value = noise.mul_(self.sigma).to(value).add_(value)
            noisy[name] = value
        return type(batch.payload).from_tensors(noisy)

    def noise(self) -> Mapping[str, Noise]:
        return {self.released.payload.__name__: Noise("gaussian", self.sigma, self.released.fields)}

    def parameters(self) -> Mapping[str, Any]:
        return {"sigma": self.sigma, "sensitivity": self.sensitivity, "row_norm": self.defense.clip}

    def guarantee(self) -> Guarantee:
        covered = self.released.covers_training
        return Guarantee(
            mechanism=f"gaussian sigma={self.sigma:.4g} on {self.defense.on}, sensitivity {self.sensitivity:.4g}",
            epsilon_claimed=self.defense.epsilon,
            epsilon_accounted=self.accounted if covered else None,
            delta=self.defense.delta,
            unit=self.defense.unit,
            adjacency="one node's feature row zeroed out; edges and labels public",
            releases=self.released.times,
            server_trusted=self.released.by_server,
        )


@dataclass(frozen=True)
class Gaussian(Defense):
    """Clip feature rows and add calibrated Gaussian noise to ``on``.

    Attributes:
        epsilon, delta: the guarantee over the whole training.
        clip: L2 norm every feature row is scaled down to.
        unit: what one record is; must be the unit in which the protocol states its sensitivity.
        on: name of the payload that gets the noise.
    """

    name: ClassVar[str] = "gaussian"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "clip")

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 1.0
    unit: str = "node"
    on: str = "NeighborSums"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.clip <= 0:
            raise FglauditError(f"clip must be positive; got {self.clip}; use e.g. clip: 1.0")
        payload_type(self.on)

    def unsupported(self, context: Context) -> str | None:
        release = self._release(context)
        if release is None:
            return f"{context.protocol} sends no {self.on} with these settings, so noise on it protects nothing"
        if release.gain is None:
            return f"no sensitivity bound is known for {self.on} of {context.protocol}: {release.why}"
        if release.unit != self.unit:
            return f"{context.protocol} states the sensitivity of {self.on} per {release.unit}, not per {self.unit}"
        return None

    def bind(self, context: Context) -> DefenseSession:
        release, reason = self._release(context), self.unsupported(context)
        if reason is not None or release is None or release.gain is None:
            raise FglauditError(f"gaussian noise cannot be calibrated: {reason}; use another defense or payload")
        return _Session(self, release, release.gain)

    def _release(self, context: Context) -> Release | None:
        return next((r for r in context.releases if r.payload.__name__ == self.on), None)
