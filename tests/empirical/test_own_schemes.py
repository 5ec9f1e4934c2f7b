"""Audits of seals of an author's own: streams and masks that are broken are found, others claimed at most."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from judged_seals import Xored, outcomes, verdict_of
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import MaskingSession, SecureAggregation
from fglaudit.empirical import judge as judging
from fglaudit.empirical.fields.examined import examined
from fglaudit.guarantees import Outcome, Word
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import MessageBatch, ModelUpdate, Payload
from fglaudit.sealing import sealed_tensor
from fglaudit.secagg import masks
from fglaudit.secagg.member import Member


@pytest.fixture(autouse=True)
def few_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced records have tests of their own."""
    monkeypatch.setattr(judging, "examined", lambda *a, **k: examined(*a, **k, quick=True))


class Streams(DefenseSession):
    """Seals models with streams that are used again, as ``of`` says."""

    def __init__(self, of: str) -> None:
        self.of = of

    def seals(self, payload: type[Payload]) -> bool:
        return payload is ModelUpdate

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        vector = batch.payload.tensors()["vector"]
        drawn = int(torch.randint(2**40, (1,), generator=rng))
        start = {"constant": 7, "round": 7 + batch.round, "drawn once": drawn, "client": drawn}
        source = torch.Generator().manual_seed(start[self.of])
        size = vector.shape[1:] if self.of != "client" else vector.shape
        stream = torch.randint(2**62, size, generator=source).expand_as(vector)
        rows = Xored.of(vector, stream)
        return dataclasses.replace(batch, payload=ModelUpdate(sealed_tensor(rows, tuple(vector.shape))))

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        vector = batch.payload.sealed_fields()["vector"]
        assert isinstance(vector.sealed, Xored)
        return dataclasses.replace(batch, payload=ModelUpdate(vector.opened(vector.sealed.values)))

    def guarantee(self) -> Guarantee:
        return Guarantee(mechanism="xor", key_custody="clients")


@dataclass(frozen=True)
class Xor(Defense):
    """Streams of the author's own."""

    name: ClassVar[str] = "xor"
    of: str = "constant"

    def bind(self, context: Context) -> DefenseSession:
        return Streams(self.of)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("constant", "the same message twice"),
        ("round", "under other keys"),
        ("drawn once", "equal plaintexts of two clients"),
    ],
)
def test_streams_that_are_used_again_are_refuted(of: str, words: str) -> None:
    verdict = verdict_of(Xor(of))
    assert verdict.word is Word.REFUTED and words in verdict.reason, verdict


def test_an_authors_own_scheme_is_claimed_at_most() -> None:
    verdict = verdict_of(Xor("client"))
    assert verdict.word is Word.CLAIMED, verdict
    assert outcomes(verdict)["sealed"] is Outcome.UNTESTED
    assert outcomes(verdict)["fresh ciphertexts"] is Outcome.PASSED


def masks_fault(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Break the masks of secure aggregation."""
    if fault == "one seed for all":
        start = Member.__init__

        def seeded(self: Member, number: int) -> None:
            start(self, number)
            self._seed = bytes(32)

        monkeypatch.setattr(Member, "__init__", seeded)
    else:  # pairs' masks alone, which the lower number adds and the higher one adds too
        real = masks.add_stream

        def one_sign(words: Tensor, seed: bytes, field: int, sign: int) -> None:
            real(words, seed, field, 1)

        monkeypatch.setattr(masks, "add_stream", one_sign)


@pytest.mark.parametrize("fault", ["one seed for all", "they do not cancel"])
def test_broken_masks_are_not_verified(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masks_fault(monkeypatch, fault)
    verdict = verdict_of(SecureAggregation(on=("NeighborSums",)))
    assert verdict.word is Word.REFUTED, verdict
    assert outcomes(verdict)["masks"] is Outcome.REFUTED


class KnownPairs(MaskingSession):
    """Masks that cancel, of seeds that everybody knows."""

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        sealed = super().seal(batch, rng)
        for number, member in enumerate(self.rounds[type(batch.payload)].aggregation.members):
            member._seed = bytes([number] * 32)
        return sealed


@dataclass(frozen=True)
class OwnMasks(SecureAggregation):
    """A subclass of the tool's session."""

    name: ClassVar[str] = "own-masks"

    def bind(self, context: Context) -> DefenseSession:
        return KnownPairs(self, context, self._served(context)[0])


def test_masks_of_an_authors_own_session_are_claimed_at_most() -> None:
    assert verdict_of(OwnMasks()).word is not Word.VERIFIED
