"""What sealed messages show beside ciphertexts must not depend on what is sealed: which rows there are and in what
order, whose messages, fields in the clear, what lies beside ciphertexts in their rows, and how many bytes, also of
keys. Nor on keys: of another author's defense the same messages are sealed by one that was bound anew.

Replays of fields never seal, so this seals the same messages with some of their rows set to zero. Sizes of ciphertexts
may be random: they are compared with those of the same rows sealed twice.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from fglaudit.defenses.aggregation.secure_aggregation import MaskingSession
from fglaudit.empirical.sealed.open_parts import open_parts, same_parts
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
    """Of sealed messages: whose they are, how long, their fields in the clear, what is open in the sealed ones, the
    bytes of each, and those of keys."""

    parties: list[Tensor]
    clear: dict[str, Tensor]
    open: dict[str, dict[str, object]]
    size: Tensor
    keys: Tensor


def clear_parts_audit(
    session: DefenseSession, before: MessageBatch, seed: int, other: DefenseSession | None = None
) -> Audit:
    """Return whether what the messages ``before`` show once they are sealed moves with what is in them, or with keys.

    Args:
        other: the same defense bound anew; None: what is shown is not compared.
    """
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
        shown = "which rows are sent, in which order, a field in the clear, or what lies beside ciphertexts"
        why = f"{kind}: {shown}, tells what is sealed in them"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.REFUTED, why)
    if any(_longer(one.size, again.size, other.size, _ROOM) for other in others) or any(
        _longer(one.keys, again.keys, other.keys, 0.0) for other in others
    ):
        why = f"{kind}: how many bytes are sent tells what is sealed in them"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.REFUTED, why)
    if other is not None and not _shows(other, before, one, again, seed):
        why = f"{kind}: what is shown beside ciphertexts is another one under other keys, so that it may tell them"
        return Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.UNTESTED, why)
    return Audit(
        AuditName.BESIDE_CIPHERTEXTS,
        Outcome.PASSED,
        f"{kind}: rows, their order and their bytes stay where values are others",
    )


def _shows(other: DefenseSession, before: MessageBatch, one: _Shown, again: _Shown, seed: int) -> bool:
    """Whether ``other`` shows of the messages what ``one`` and ``again`` do. Keys may be counted with a first message,
    so the second one is compared."""
    nothing = torch.zeros(int(before.entry_messages().numel()), dtype=torch.bool)
    _, shown = (_shown(other, _without(before, nothing), number, seed) for number in range(2))
    longer = _longer(one.size, again.size, shown.size, _ROOM) or _longer(again.keys, again.keys, shown.keys, 0.0)
    return _alike(again, shown) and not longer


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
    beside = {name: open_parts(value) for name, value in fields.items() if isinstance(value, SealedTensor)}
    return _Shown(parties, clear, beside, sent.bytes_per_message().double().cpu(), torch.cat(list(keys)).double().cpu())


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
    if not same or not all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs):
        return False
    return one.open.keys() == other.open.keys() and all(same_parts(v, other.open[n]) for n, v in one.open.items())
