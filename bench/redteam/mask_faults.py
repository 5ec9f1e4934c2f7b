"""Faults of masks that add up to zero: those of an author's own, and the tool's with weak keys or shares."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.redteam.planted import fault
from bench.redteam.sealed_faults import _changed, _Sealing
from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession, _decoded, dense_words
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedTensor
from fglaudit.secagg.rows import MaskedRows


class _Masked(_Sealing):
    """Masks of the author's own in place of the tool's, which add up to zero."""

    inner: MaskingSession

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.secret, self.added = int.from_bytes(os.urandom(8), "big"), dict[tuple[int, int, int], Tensor]()

    def sealed_by(self) -> DefenseSession:
        return self.inner

    def of(self, round: int) -> object:
        """Return what masks of ``round`` are made of."""
        raise NotImplementedError

    def masks(self, plain: Tensor, masked: Tensor, round: int, field: int) -> Tensor:
        """Return masks for the words ``plain`` [P, S, D], which the tool has ``masked``."""
        total = torch.zeros_like(plain)
        for low in range(len(plain)):
            for high in range(low + 1, len(plain)):
                raw = hashlib.shake_128(repr((self.of(round), low, high, field)).encode())
                stream = torch.frombuffer(bytearray(raw.digest(plain[0].numel() * 4)), dtype=torch.int32)
                total[low] += stream.view_as(plain[0])
                total[high] -= stream.view_as(plain[0])
        return total

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        current = self.inner.rounds[type(batch.payload)]

        def change(name: str, rows: MaskedRows) -> MaskedRows:
            plain = dense_words(current, batch, batch.payload.tensors()[name])
            masks = self.masks(plain, rows.words.view_as(plain), batch.round, rows.field)
            self.added.update(((current.number, rows.field, place), own) for place, own in enumerate(masks))
            return dataclasses.replace(rows, words=(plain + masks).flatten(0, 1))

        return _changed(sealed, change)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self._opened(batch, lambda rows: sum(m for (a, f, _), m in self.added.items() if self._is(rows, a, f)))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        def masks(rows: MaskedRows) -> Tensor:
            slots = len(torch.unique(rows.slot))
            senders = rows.parts[::slots].argmax(1).tolist()
            return torch.cat([self.added[rows.aggregation, rows.field, place] for place in senders])

        return self._opened(batch, masks)

    def _is(self, rows: MaskedRows, aggregation: int, field: int) -> bool:
        return (rows.aggregation, rows.field) == (aggregation, field)

    def _opened(self, batch: MessageBatch, masks: Callable[[MaskedRows], Any]) -> MessageBatch:
        def read(value: SealedTensor) -> Tensor:
            rows, current = value.sealed, self.inner._of(value)
            assert isinstance(rows, MaskedRows)
            taken = dataclasses.replace(rows, words=(rows.words - self._by_row(rows, masks(rows))).to(rows.words.dtype))
            return _decoded(current, taken, None).reshape(value.shape).to(value.dtype)

        tensors = batch.payload.tensors()
        opened = {name: read(value) for name, value in batch.payload.sealed_fields().items()}
        return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors | opened))

    def _by_row(self, rows: MaskedRows, masks: Tensor) -> Tensor:
        """Return the masks of rows [R, D]: one each, or those of their slots."""
        if len(masks) == len(rows.words):
            return masks
        return torch.where(rows.slot[:, None] < 0, 0, masks[rows.slot.clamp(min=0)])


@fault
class PublicMasks(_Masked):
    """Masks of the number of the round and of the clients."""

    def of(self, round: int) -> object:
        return round


@fault
class MasksAgain(_Masked):
    """Masks of a secret, the same in all rounds."""

    def of(self, round: int) -> object:
        return self.secret


@fault
class FewMasks(_Masked):
    """Masks of 16 bits."""

    def of(self, round: int) -> object:
        return self.secret % 2**16, round


@fault
class LastColumnBare(_Masked):
    """The last column has no masks."""

    def masks(self, plain: Tensor, masked: Tensor, round: int, field: int) -> Tensor:
        masks = masked - plain
        masks[..., -1] = 0
        return masks


@fault
class SomeNumbersBare(_Masked):
    """Few numbers of the first client have no masks."""

    def masks(self, plain: Tensor, masked: Tensor, round: int, field: int) -> Tensor:
        masks = masked - plain
        masks[0].view(-1)[::60] = 0
        return masks


class _Unmasked(_Masked):
    """The tool's masks as they are, of another aggregation."""

    def agreed(self, current: MaskingRound) -> None:
        """Change an aggregation in which keys were exchanged just now."""
        raise NotImplementedError

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        known, current = self.inner.rounds.get(type(batch.payload)), self.inner._round(batch, rng)
        if current is not known:
            self.agreed(current)
        return self.inner.seal(batch, rng)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self.inner.forward(batch)

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        return self.inner.unseal(batch)


@fault
class FewSeeds(_Unmasked):
    """The tool's masks, of seeds of 16 bits."""

    def agreed(self, current: MaskingRound) -> None:
        aggregation = current.aggregation
        for member in aggregation.members:
            member._seed = hashlib.sha256(os.urandom(2) + bytes([member.number])).digest()
        publics = {member.number: member.publics() for member in aggregation.members}
        for member in aggregation.members:  # they share out what they have now
            for receiver, share in member.share(publics, aggregation.threshold).items():
                aggregation.members[receiver]._channels[member.number] = member._channels[receiver]
                aggregation.members[receiver].receive(member.number, share)


@fault
class FewSeedsLater(FewSeeds):
    """The same from the third round on."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return super().seal(batch, rng) if batch.round >= 3 else self.inner.seal(batch, rng)


@fault
class SharesOfOne(_Unmasked):
    """Every member shares out its keys so that a single share gives them."""

    def agreed(self, current: MaskingRound) -> None:
        members = current.aggregation.members
        publics = {member.number: member.publics() for member in members}
        for member in members:
            for receiver, share in member.share(publics, 1).items():
                members[receiver].receive(member.number, share)


@fault
class LowThreshold(_Unmasked):
    """Keys are shared out among all so that one of them has them, and more are stated."""

    def agreed(self, current: MaskingRound) -> None:
        from fglaudit.secagg.aggregation import Aggregation

        made = current.aggregation
        current.aggregation = Aggregation(made.size, made.survivors, 1)


@fault
class FactorTells(_Unmasked):
    """The public factor of every row has the row's size behind its digits."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = self.inner.seal(batch, rng)
        current = self.inner.rounds[type(batch.payload)]

        def change(name: str, rows: MaskedRows) -> MaskedRows:
            size = dense_words(current, batch, batch.payload.tensors()[name]).flatten(0, 1).double().abs().sum(1)
            return dataclasses.replace(rows, factor=rows.factor + 1e-7 * size / 2.0**31)

        return _changed(sealed, change)


@fault
class MaskedAgain(_Masked):
    """Honest: the tool's masks through a session of another author."""

    def masks(self, plain: Tensor, masked: Tensor, round: int, field: int) -> Tensor:
        return masked - plain
