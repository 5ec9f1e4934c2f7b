"""Faults of encryption that hides every number, and shows something beside the ciphertexts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.redteam.planted import Broken, fault
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedRows, sealed_tensor


def _lengths(batch: MessageBatch) -> Tensor:
    """Return what the numbers of every row of the messages come to [entries]."""
    values = next(v for v in batch.payload.tensors().values() if v.is_floating_point())
    return values.flatten(1).abs().double().sum(1).cpu()


def _changed(batch: MessageBatch, change: Callable[[str, Any], SealedRows]) -> MessageBatch:
    """Return the messages with other sealed rows, made of the name of a field and its rows."""
    tensors = batch.payload.tensors()
    for name, value in batch.payload.sealed_fields().items():
        tensors[name] = sealed_tensor(change(name, value.sealed), tuple(value.shape), value.dtype, value.axes)
    return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))


class _Sealing(Broken):
    def seals(self, payload: type) -> bool:
        return self.inner.seals(payload)

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return self.inner.seal(batch, rng)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self.inner.forward(batch)

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        return self.inner.unseal(batch)

    def readers(self, batch: MessageBatch) -> int:
        return self.inner.readers(batch)

    def overhead(self) -> tuple[Tensor, Tensor] | None:
        return self.inner.overhead()


@fault
class SealedByLength(_Sealing):
    """Rows are sealed in the order of their lengths."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        if batch.splits is None:
            return super().seal(batch, rng)
        order = torch.argsort(batch.entry_messages() * 1e6 + _lengths(batch), stable=True)
        return super().seal(dataclasses.replace(batch, payload=batch.payload.select(order)), rng)


@fault
class ZeroRowsLeftOut(_Sealing):
    """Rows of zeros are not sent: the sum is the same."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return super().seal(batch if batch.splits is None else batch.select_entries(_lengths(batch) > 0), rng)


@fault
class BytesByLength(_Sealing):
    """Counts as many bytes of keys as the rows that are sealed come to."""

    counted: tuple[Tensor, Tensor] | None = None

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        size = torch.zeros(int(batch.senders.max().item()) + 1, dtype=torch.long) + int(_lengths(batch).sum())
        self.counted = size, torch.zeros_like(size)
        return super().seal(batch, rng)

    def overhead(self) -> tuple[Tensor, Tensor] | None:
        counted, self.counted = self.counted, None
        return counted


@fault
class SealedAtFirst(_Sealing):
    """Models are sent in the clear from the third round on."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return super().seal(batch, rng) if batch.round < 3 else batch

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return super().forward(batch) if batch.payload.sealed_fields() else batch

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        return super().unseal(batch) if batch.payload.sealed_fields() else batch


@fault
class SealsAtFirst(_Sealing):
    """Says from the fourth upload on that models are not sealed."""

    uploads = 0

    def seals(self, payload: type) -> bool:
        return self.uploads < 3 and super().seals(payload)

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        self.uploads += 1
        return super().seal(batch, rng)


_MIDDLE = 4
"""A round that is neither among the first nor the last."""


@fault
class CopyInOneRound(_Sealing):
    """Rows carry what is sealed in them in the clear, in one round."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        for name, value in sealed.payload.sealed_fields().items() if batch.round == _MIDDLE else ():
            object.__setattr__(value.sealed, "cached", batch.payload.tensors()[name].clone())
        return sealed


@fault
class SchemeHoldsOneRound(_Sealing):
    """What encrypts models, which rows name, holds those of one round in the clear."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        for name, value in sealed.payload.sealed_fields().items():
            kept = batch.payload.tensors()[name].clone() if batch.round == _MIDDLE else None
            value.sealed.scheme.last = kept  # type: ignore[attr-defined]
        return sealed


@fault
class BytesInOneRound(BytesByLength):
    """Counts as many bytes of keys as the rows of one round come to."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        self.counted = self.counted if batch.round == _MIDDLE else None
        return sealed


@fault
class SealedAgain(_Sealing):
    """Honest: what is sealed goes through a session of another author."""


BROKEN: tuple[tuple[str, str], ...] = (
    ("SealedByLength", "bfv"), ("ZeroRowsLeftOut", "bfv"), ("BytesByLength", "bfv"),
    ("SealedAtFirst", "ckks-models"), ("SealsAtFirst", "ckks-models"),
    *((name, "ckks-models") for name in ("CopyInOneRound", "SchemeHoldsOneRound", "BytesInOneRound")),
)  # fmt: skip
"""What is wrong, and with what."""
HONEST: tuple[tuple[str, str], ...] = (("SealedAgain", "bfv"),)
"""What is right, and on what."""
