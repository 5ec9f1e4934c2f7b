"""Audits of ciphertexts: known schemes pass; keys that are sent, streams and ciphertexts used again are found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from judged_seals import Xored, judged, outcomes, verdict_of

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.empirical import judge as judging
from fglaudit.empirical.fields.examined import examined
from fglaudit.facts import Fact, Field, Sealed
from fglaudit.guarantees import Word
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, ModelUpdate, NeighborSums, Payload
from fglaudit.sealing import SealedTensor, sealed_tensor


@pytest.fixture(autouse=True)
def few_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced records have tests of their own."""
    monkeypatch.setattr(judging, "examined", lambda *a, **k: examined(*a, **k, quick=True))


@pytest.mark.parametrize(
    "defense",
    [
        HomomorphicEncryption(),
        HomomorphicEncryption(scheme="ckks", on=("NeighborSums",)),
        SecureAggregation(),
        SecureAggregation(dropouts=0.34),
    ],
    ids=["bfv", "ckks", "sums", "dropouts"],
)
def test_schemes_of_known_libraries_are_verified(defense: Defense) -> None:
    verdict, sealing = judged(defense)
    assert verdict.word is Word.VERIFIED, verdict
    assert sealing.startswith("sealed, verified: ")
    assert verdict.epsilon is None and "NeighborSums" in verdict.covers and "holds a key" in verdict.not_covered
    assert {"sealed", "fresh ciphertexts", "key material"} <= set(outcomes(verdict))
    assert ("masks" in outcomes(verdict)) is isinstance(defense, SecureAggregation)
    if isinstance(defense, HomomorphicEncryption) and defense.scheme == "ckks":
        assert "flooding noise of standard deviation" in verdict.reason


def test_shortened_is_claimed() -> None:
    verdict, sealing = judged(SecureAggregation(), quick=True)
    assert sealing == "sealed, claimed: not replayed, as asked"
    assert verdict.word is Word.CLAIMED and verdict.reason == "not replayed, as asked"


class Wrapped(DefenseSession):
    """An honest session with a fault in what it sends."""

    def __init__(self, honest: DefenseSession, fault: str) -> None:
        self.honest, self.fault = honest, fault

    def seals(self, payload: type[Payload]) -> bool:
        return self.honest.seals(payload)

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        return self.honest.seal(batch, rng)

    def forward(self, batch: MessageBatch) -> MessageBatch:
        return self.honest.forward(batch)

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        return self.honest.unseal(batch)

    def changes(self, payload: type[Payload]) -> bool:
        return self.fault != "none" and payload is ModelUpdate

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Send the key along, in a model."""
        if self.fault == "none" or not isinstance(batch.payload, ModelUpdate):
            return batch.payload
        blob, words = next(iter(self.honest.sealers.values())).codec.keys.key_material()  # type: ignore[attr-defined]
        numbers = torch.tensor(list(blob) if self.fault == "bytes" else [float(word) for word in words])
        vector = batch.payload.vector.clone()
        count = min(vector.shape[1], len(numbers))
        vector[:, :count] = numbers[:count].to(vector)
        return ModelUpdate(vector)

    def facts(self) -> tuple[Fact, ...]:
        return self.honest.facts()

    def guarantee(self) -> Guarantee:
        return self.honest.guarantee()


@dataclass(frozen=True)
class KeySent(HomomorphicEncryption):
    """Encrypts, and puts the key into models."""

    name: ClassVar[str] = "key-sent"
    fault: str = "bytes"

    def bind(self, context: Context) -> DefenseSession:
        return Wrapped(super().bind(context), self.fault)


@pytest.mark.parametrize("form", ["bytes", "words"])
def test_a_key_in_another_payload_is_found(form: str) -> None:
    verdict = verdict_of(KeySent(fault=form))
    assert verdict.word is Word.REFUTED and "key material in vector of ModelUpdate" in verdict.reason


def test_a_plugin_that_encrypts_with_the_tools_keys_is_verified() -> None:
    assert verdict_of(KeySent(fault="none")).word is Word.VERIFIED


class ManyReaders(Wrapped):
    """Says that it takes several clients to open what each of them opens."""

    def readers(self, batch: MessageBatch) -> int:
        return 3


@dataclass(frozen=True)
class OneKeyForMany(HomomorphicEncryption):
    name: ClassVar[str] = "one-key-for-many"

    def bind(self, context: Context) -> DefenseSession:
        return ManyReaders(super().bind(context), "none")


def test_a_key_that_all_clients_hold_takes_no_more_than_one_of_them() -> None:
    """An observer with a key would else be given ciphertexts alone."""
    verdict = verdict_of(OneKeyForMany())
    assert verdict.word is Word.REFUTED and "keys of 3 clients, and those of 1 open it" in verdict.reason


class Silent(Wrapped):
    """Seals and promises nothing."""

    def guarantee(self) -> Guarantee:
        return Guarantee()


@dataclass(frozen=True)
class SilentSeal(Defense):
    """Seals sums as ``scheme`` says, or in the clear, and promises nothing."""

    name: ClassVar[str] = "silent-seal"
    scheme: str = "clear"

    def bind(self, context: Context) -> DefenseSession:
        return Silent(HomomorphicEncryption().bind(context), "none") if self.scheme == "bfv" else Clear()


class Clear(DefenseSession):
    """Calls it sealed and sends the numbers themselves."""

    def seals(self, payload: type[Payload]) -> bool:
        return payload is NeighborSums

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        payload = batch.payload
        assert isinstance(payload, NeighborSums)
        rows = Xored.of(payload.sums, torch.zeros_like(payload.sums, dtype=torch.long))
        sealed = NeighborSums(payload.nodes, sealed_tensor(rows, tuple(payload.sums.shape)))
        return dataclasses.replace(batch, payload=sealed)

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        payload = batch.payload
        assert isinstance(payload, NeighborSums) and isinstance(payload.sums, SealedTensor)
        assert isinstance(payload.sums.sealed, Xored)
        return dataclasses.replace(
            batch, payload=NeighborSums(payload.nodes, payload.sums.opened(payload.sums.sealed.values))
        )

    def facts(self) -> tuple[Fact, ...]:
        return (Sealed(Field("NeighborSums"), "bfv", rounding=2.0**-20),)


@pytest.mark.parametrize(("scheme", "word"), [("bfv", "verified: "), ("clear", "refuted: ")])
def test_what_is_sealed_without_any_promise_is_audited_too(scheme: str, word: str) -> None:
    """A gate lets pass what is sealed, whatever is promised."""
    verdict, sealing = judged(SilentSeal(scheme))
    assert verdict.word is Word.NONE and sealing.startswith(f"sealed, {word}"), sealing
    assert judged(SilentSeal(scheme), quick=True)[1].startswith("sealed, claimed: ")


class Repeating(DefenseSession):
    """Encrypts each message once, and sends the same ciphertexts again for the same message."""

    def __init__(self, honest: DefenseSession) -> None:
        self.honest = honest
        self.kept: dict[Any, MessageBatch] = {}

    def __getattribute__(self, name: str) -> Any:
        if name in ("seal", "honest", "kept", "sealed_by", "__class__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "honest"), name)

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        key = tuple(batch.payload.tensors()["sums"].flatten().tolist())
        if key not in self.kept:
            self.kept[key] = self.honest.seal(batch, rng)
        found: MessageBatch = dataclasses.replace(self.kept[key], round=batch.round)
        return found


@dataclass(frozen=True)
class Remembering(HomomorphicEncryption):
    """SEAL, without fresh randomness."""

    name: ClassVar[str] = "remembering"

    def bind(self, context: Context) -> DefenseSession:
        return Repeating(super().bind(context))


def test_ciphertexts_that_are_sent_again_are_refuted() -> None:
    verdict = verdict_of(Remembering())
    assert verdict.word is Word.REFUTED and "the same message twice" in verdict.reason
