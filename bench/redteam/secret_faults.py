"""Faults of seals whose libraries are sound: keys and masks that others know, or that something shown tells."""

from __future__ import annotations

import dataclasses
import fractions
import hashlib
import os
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from bench.redteam.planted import fault
from bench.redteam.sealed_faults import _Sealing
from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession, _decoded, dense_words
from fglaudit.facts import Fact, Sealed
from fglaudit.he.codec import SharedKeyCodec
from fglaudit.he.packed_rows import Bundle, PackedRows
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedRows, SealedTensor, sealed_tensor
from fglaudit.secagg.rows import MaskedRows


def _changed(batch: MessageBatch, change: Callable[[str, Any], SealedRows]) -> MessageBatch:
    """Return the messages with other sealed rows, made of the name of a field and its rows."""
    tensors = batch.payload.tensors()
    for name, value in batch.payload.sealed_fields().items():
        tensors[name] = sealed_tensor(change(name, value.sealed), tuple(value.shape), value.dtype, value.axes)
    return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(tensors))


class _Encrypting(_Sealing):
    """Of bfv or ckks of the tool."""

    @property
    def codec(self) -> SharedKeyCodec:
        codec: SharedKeyCodec = next(iter(self.inner.sealers.values())).codec  # type: ignore[attr-defined]
        return codec

    @property
    def secret(self) -> tuple[int, ...]:
        return self.codec.keys.key_material()[1]


@fault
class KeyInOrder(_Encrypting):
    """Rows are sealed in an order that is made of the key."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        if batch.splits is None:
            return super().seal(batch, rng)
        words, rows = self.secret, int(batch.splits[-1])
        place = torch.tensor([words[row % len(words)] % 2**31 for row in range(rows)])
        order = torch.argsort(batch.entry_messages() * 2**33 + place, stable=True)
        return super().seal(dataclasses.replace(batch, payload=batch.payload.select(order)), rng)


@fault
class KeyInFacts(_Encrypting):
    """The rounding that is stated has 30 bits of the key behind its digits."""

    def facts(self) -> tuple[Fact, ...]:
        code = sum((word % 2) << place for place, word in enumerate(self.secret[:30]))
        return tuple(
            dataclasses.replace(fact, rounding=fact.rounding + 1e-12 * code) if isinstance(fact, Sealed) else fact
            for fact in super().facts()
        )


@fault
class KeyInBytes(_Encrypting):
    """Counts as many bytes of keys as a part of the key comes to."""

    def overhead(self) -> tuple[Tensor, Tensor]:
        size = torch.tensor([word % 2**20 for word in self.secret[:3]])
        return size, torch.zeros_like(size)


@fault
class KeyInFunction(_Encrypting):
    """The sealed rows carry a function that returns the key."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        secret, sealed = self.secret, super().seal(batch, rng)
        for value in sealed.payload.sealed_fields().values():
            object.__setattr__(value.sealed, "size_of", lambda: secret)
        return sealed


_KEPT: dict[str, object] = {}


@fault
class KeyInModule(_Encrypting):
    """The module keeps what encrypted last."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        _KEPT["codec"] = self.codec
        return super().seal(batch, rng)


@fault
class KeyInClass(_Encrypting):
    """The class keeps the keys of all its sessions."""

    made: ClassVar[list[tuple[int, ...]]] = []

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.made.append(self.secret)


@fault
class KeyInOtherModule(_Encrypting):
    """A module of the standard library has the keys under a name of its own."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        fractions.kept = self.secret  # type: ignore[attr-defined]
        return super().seal(batch, rng)


@fault
class KeyAtServer(_Encrypting):
    """What the server computes with can decrypt too."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        self.codec.server.decryptor = self.codec.keys._decryptor  # type: ignore[attr-defined]
        return super().seal(batch, rng)


_PUBLISHED: dict[type, object] = {}


@fault
class OpenedByServer(_Encrypting):
    """The server decrypts sums before it passes them on."""

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self.inner.unseal(self.inner.forward(batch))


@fault
class OneKeyForAllRuns(_Encrypting):
    """Every run has the key that the author made once."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.codec.keys = _PUBLISHED.setdefault(type(self.codec), self.codec.keys)  # type: ignore[assignment]


class _Again(_Encrypting):
    """Sends ciphertexts that were made before."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)

        def change(name: str, rows: PackedRows) -> PackedRows:
            values = torch.tensor_split(batch.payload.tensors()[name], batch.splits[1:-1])  # type: ignore[index]
            return dataclasses.replace(rows, bundles=tuple(map(self.kept, values, rows.bundles)))

        return sealed if batch.splits is None else _changed(sealed, change)

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.made: dict[tuple[float, ...], Bundle] = {}

    def kept(self, values: Tensor, bundle: Bundle) -> Bundle:
        return self.made.setdefault(tuple(values.flatten().tolist()), bundle)


@fault
class EqualMessagesOnce(_Again):
    """Equal messages are encrypted once."""


@fault
class ZerosOnce(_Again):
    """Messages of zeros are encrypted once."""

    def kept(self, values: Tensor, bundle: Bundle) -> Bundle:
        return bundle if bool(values.any()) else super().kept(values, bundle)


@fault
class CopyBeside(_Encrypting):
    """Rows carry what is sealed in them in the clear, under a name that no scheme has."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        def change(name: str, rows: SealedRows) -> SealedRows:
            object.__setattr__(rows, "cached", batch.payload.tensors()[name].clone())
            return rows

        return _changed(super().seal(batch, rng), change)


@fault
class CopyInScheme(_Sealing):
    """What encrypts models, which rows name, holds the last ones in the clear."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        for name, value in sealed.payload.sealed_fields().items():
            value.sealed.scheme.last = batch.payload.tensors()[name].clone()  # type: ignore[attr-defined]
        return sealed


@fault
class HardlyFlooded(_Encrypting):
    """Opens ckks with noise that hides nothing of the key, and states it."""

    def __init__(self, inner: DefenseSession) -> None:
        super().__init__(inner)
        self.codec.flooding = 1e-30  # type: ignore[attr-defined]


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


TOLD: tuple[tuple[str, str], ...] = (
    ("EqualMessagesOnce", "bfv"), ("ZerosOnce", "bfv"), ("CopyBeside", "bfv"), ("PublicMasks", "masked-sums"),
    ("MasksAgain", "masked-sums"), ("LastColumnBare", "masked-sums"), ("FactorTells", "masked-sums"),
    ("SomeNumbersBare", "masked-sums"), ("CopyInScheme", "ckks-models"),
    ("SharesOfOne", "masked-sums"), ("LowThreshold", "masked-sums"),
)  # fmt: skip
"""What shows itself in messages or in shares."""
KNOWN: tuple[tuple[str, str], ...] = (
    ("KeyInOrder", "bfv"), ("KeyInFacts", "bfv"), ("KeyInBytes", "bfv"), ("KeyAtServer", "bfv"),
    ("KeyInFunction", "bfv"),
    ("OneKeyForAllRuns", "bfv"), ("HardlyFlooded", "ckks"), ("FewMasks", "masked-sums"), ("FewSeeds", "masked-sums"),
    ("FewSeedsLater", "masked-sums"), ("OpenedByServer", "bfv"),
    ("KeyInModule", "bfv"), ("KeyInClass", "bfv"), ("KeyInOtherModule", "bfv"),
)  # fmt: skip
"""What is not this tool's own, or may tell a key."""
BROKEN = (*TOLD, *KNOWN)
HONEST: tuple[tuple[str, str], ...] = (("MaskedAgain", "masked-sums"),)
