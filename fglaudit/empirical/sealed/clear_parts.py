"""What sealed messages show beside ciphertexts must not depend on what is sealed: which rows there are and in what
order, whose messages, fields in the clear, and how many bytes, also of keys.

Replays of fields never seal, so this seals the same messages with some of their rows set to zero. Sizes of ciphertexts
may be random: they are compared with those of the same rows sealed twice.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.defenses.aggregation.secure_aggregation import MaskingSession
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import DefenseSession
from fglaudit.payloads import MessageBatch
from fglaudit.rng import derive
from fglaudit.sealing import SealedTensor
from fglaudit.wire.observing.foreign import is_foreign

_LATER = 2_000_000
"""Rounds later in which messages are masked again: not one of the run's."""
_ROOM = 0.05
"""Share of the bytes of ciphertexts that may be random: they are packed, and as long as chance has it."""


class _Shown(NamedTuple):
    """Of sealed messages: whose they are, how long, their fields in the clear, the bytes of each, and those of keys."""

    parties: list[Tensor]
    clear: dict[str, Tensor]
    size: Tensor
    keys: Tensor


def clear_parts_audit(session: DefenseSession, before: MessageBatch, seed: int) -> Audit:
    """Return whether what the messages ``before`` show once they are sealed moves with what is in them."""
    kind = type(before.payload).__name__
    rows = int(before.entry_messages().numel())
    half = torch.rand(rows, generator=derive(seed, "sealed rows")) < 0.5
    nothing, everything = torch.zeros(rows, dtype=torch.bool), torch.ones(rows, dtype=torch.bool)
    session.overhead()  # what was counted before
    one, again, *others = (
        _shown(session, _without(before, zeros), number, seed)
        for number, zeros in enumerate((nothing, nothing, half, ~half, everything))
    )
    if not _alike(one, again):
        why = f"{kind}: what is shown beside ciphertexts is another one when equal messages are sealed again"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.UNTESTED, why)
    if any(not _alike(one, other) for other in others):
        why = f"{kind}: which rows are sent, in which order, or a field in the clear, tells what is sealed in them"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.REFUTED, why)
    if any(_longer(one.size, again.size, other.size, _ROOM) for other in others) or any(
        _longer(one.keys, again.keys, other.keys, 0.0) for other in others
    ):
        why = f"{kind}: how many bytes are sent tells what is sealed in them"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.REFUTED, why)
    return Audit(
        AuditName.BESIDE_CIPHERTEXTS,
        Outcome.PASSED,
        f"{kind}: rows, their order and their bytes stay where values are others",
    )


def _without(batch: MessageBatch, zeros: Tensor) -> MessageBatch:
    """Return the messages, in memory of their own, with some of their rows [entries] set to zero."""
    fields = {}
    for name, value in batch.payload.tensors().items():
        kept = (~zeros).to(value.device).view(-1, *[1] * (value.dim() - 1))
        fields[name] = value * kept if value.is_floating_point() else value.clone()
    return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(fields))


def _shown(session: DefenseSession, batch: MessageBatch, number: int, seed: int) -> _Shown:
    masking = isinstance(session.sealed_by(), MaskingSession)  # whose masks are used once
    later = dataclasses.replace(batch, round=batch.round + (_LATER + number if masking else 0))
    sealing, rng = session.sealed_by(), derive(seed, "sealed again", "beside")
    if is_foreign(session):  # which may say something in its other hooks
        sealing, later = session, dataclasses.replace(later, payload=session.release(later, rng))
    sent = sealing.seal(later, rng)
    keys = session.overhead() or (torch.zeros(1), torch.zeros(1))
    parties = [sent.senders.cpu(), sent.receivers.cpu(), *([] if sent.splits is None else [sent.splits.cpu()])]
    fields = sent.payload.tensors()
    clear = {name: value.cpu() for name, value in fields.items() if not isinstance(value, SealedTensor)}
    return _Shown(parties, clear, sent.bytes_per_message().double().cpu(), torch.cat(list(keys)).double().cpu())


def _longer(one: Tensor, again: Tensor, other: Tensor, room: float) -> bool:
    """Whether the bytes ``other`` are farther from ``one`` than those of equal values, and by a share ``room`` more."""
    if one.shape != again.shape or one.shape != other.shape:
        return True
    return bool(((one - other).abs() > 4 * (one - again).abs().max() + room * one).any())


def _alike(one: _Shown, other: _Shown) -> bool:
    same = len(one.parties) == len(other.parties) and one.clear.keys() == other.clear.keys()
    pairs = [
        *zip(one.parties, other.parties, strict=False),
        *((v, other.clear.get(n, v)) for n, v in one.clear.items()),
    ]
    return same and all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)
