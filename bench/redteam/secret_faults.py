"""Faults of seals whose libraries are sound: keys that others know, or that something shown tells."""

from __future__ import annotations

import dataclasses
import fractions
from typing import ClassVar

import torch
from torch import Tensor

from bench.redteam.planted import fault
from bench.redteam.sealed_faults import _changed, _Sealing
from fglaudit.facts import Fact, Sealed
from fglaudit.he.codec import SharedKeyCodec
from fglaudit.he.packed_rows import Bundle, PackedRows
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedRows


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
