"""A scheme that hides nothing behind the interface of sealed tensors, so that every value can be compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import MessageBatch, NeighborSums, Payload
from fglaudit.sealing import SealedRows, SealedTensor, sealed_tensor

BYTES = 16
"""Per entry of a pretended ciphertext."""


@dataclass(frozen=True)
class OpenRows(SealedRows):
    """Numbers in the clear behind the interface."""

    x: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return (self.x.shape[0], self.x.shape[1])

    def combine(self, weights: Tensor) -> SealedRows:
        return OpenRows(weights @ self.x)

    def add(self, other: SealedRows) -> SealedRows:
        assert isinstance(other, OpenRows)
        return OpenRows(self.x + other.x)

    def join(self, count: int) -> SealedRows:
        return OpenRows(self.x.reshape(-1, count * self.shape[1]))

    def wire_bytes(self, splits: Tensor) -> Tensor:
        return splits.diff() * self.shape[1] * BYTES


class _Session(DefenseSession):
    def __init__(self, on: tuple[type[Payload], ...], server_reads: bool) -> None:
        self.on = on
        self.server_reads = server_reads

    def seals(self, payload: type[Payload]) -> bool:
        return payload in self.on

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        hidden = {
            name: sealed_tensor(OpenRows(value.double().flatten(1)), tuple(value.shape), value.dtype)
            if value.is_floating_point()
            else value
            for name, value in batch.payload.tensors().items()
        }
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(hidden))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        read = {}
        for name, value in batch.payload.tensors().items():
            if isinstance(value, SealedTensor):
                assert isinstance(value.sealed, OpenRows)
                value = value.opened(value.sealed.x)
            read[name] = value
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(read))

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self.unseal(batch) if self.server_reads else batch


@dataclass(frozen=True)
class Pretend(Defense):
    """Seals nothing in truth."""

    name: ClassVar[str] = "pretend"
    server_reads: bool = False
    on: tuple[type[Payload], ...] = (NeighborSums,)

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self.on, self.server_reads)
