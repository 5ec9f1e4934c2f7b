"""Faults of noise on models that clients upload, and that the server returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.redteam.planted import Broken, fault
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload


class BrokenModels(Broken):
    """Of DP-FedAvg: what the server, or a client, sends less what entered is what the fault works on."""

    by_server = True

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        honest = self.inner.release(batch, rng)
        own = isinstance(batch.payload, ModelUpdate) and bool((batch.senders == SERVER).all()) is self.by_server
        if not own or (self.by_server and batch.round == 0):
            return honest
        assert isinstance(honest, ModelUpdate) and isinstance(batch.payload, ModelUpdate)
        return ModelUpdate(self.models(batch, batch.payload.vector, honest.vector, rng))

    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        return honest


@fault
class ServerTooLittle(BrokenModels):
    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        return given + (honest - given) / 1.5


@fault
class ServerAgain(BrokenModels):
    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        if getattr(self, "kept", torch.empty(0)).shape != honest.shape:
            self.kept = honest - given
        return given + self.kept


@fault
class ServerEverySecondRound(BrokenModels):
    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        return honest if batch.round % 2 else given


@fault
class ClientsUnclipped(BrokenModels):
    by_server = False

    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        return given


class BrokenUploads(BrokenModels):
    """Noise of clients on their own clipped changes."""

    by_server = False

    def models(self, batch: MessageBatch, given: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
        inner: Any = self.inner
        start = inner._received[batch.senders] if not inner.uploads.changes else torch.zeros_like(given)
        clipped: Tensor = inner.mechanism.clipped(given - start)
        return start + clipped + self.fresh(clipped, rng)

    def fresh(self, value: Tensor, rng: torch.Generator) -> Tensor:
        mechanism = self.inner.mechanism  # type: ignore[attr-defined]
        return mechanism.with_noise(torch.zeros_like(value), rng)  # type: ignore[no-any-return]


@fault
class UploadsSeeded(BrokenUploads):
    def fresh(self, value: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(value, torch.Generator().manual_seed(7))


@fault
class UploadsShareNoise(BrokenUploads):
    def fresh(self, value: Tensor, rng: torch.Generator) -> Tensor:
        return super().fresh(value[:1], rng).expand_as(value)
