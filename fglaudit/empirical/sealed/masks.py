"""The masks of secure aggregation: fresh for every client and round, random everywhere, of nobody's own making."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import norm

from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, dense_words
from fglaudit.empirical.sealed.ciphertext_bytes import LEAST
from fglaudit.empirical.sealed.replay import SealedTrace
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.secagg.rows import MaskedRows

_BITS = 2**23
_ROWS = 4096
"""Rows of masks of one sealing that are compared with others."""
_BARE = 8
"""Numbers without a mask: of 10^9 words of 32 bits so many are zeros with probability 1e-10."""


def masks_audit(trace: SealedTrace, rounds: Sequence[MaskingRound], *, foreign: bool) -> Audit:
    """Return whether masks are fresh for every client and round, look random, and cancel in the sum."""
    keys = [key for current in rounds for member in current.aggregation.members for key in member.key_material()]
    if len(set(keys)) < len(keys):
        return Audit(AuditName.MASKS, Outcome.REFUTED, "two clients, or two rounds, have masks of the same key")
    totals: dict[tuple[int, int], torch.Tensor] = {}
    senders: dict[tuple[int, int], int] = {}
    ones = bits = bare = 0
    seen: set[int] = set()
    strange = ""
    for (before, after), current in zip(trace.sealings, trace.masked, strict=True):
        if current is None:
            continue
        kept = before.select(torch.isin(before.senders, after.senders))
        for name, value in after.payload.sealed_fields().items():
            rows = value.sealed
            assert isinstance(rows, MaskedRows)
            plain = dense_words(current, kept, kept.payload.tensors()[name])
            masks = rows.words.view(plain.shape) - plain
            raw = np.unpackbits(masks.numpy().reshape(-1).view(np.uint8)[: max(0, _BITS - bits) // 8])
            ones, bits = ones + int(raw.sum()), bits + len(raw)
            bare += int((masks == 0).sum())
            known = [hash(row.tobytes()) for row in masks.flatten(0, 1)[:_ROWS].numpy()]
            if masks.shape[-1] * masks.element_size() >= LEAST and len(seen.union(known)) < len(seen) + len(known):
                return Audit(
                    AuditName.MASKS, Outcome.REFUTED, "rows of two clients, nodes or rounds have the same mask"
                )
            seen.update(known)
            if foreign and not _of_keys(current, rows, masks):
                strange = "masks are not those of the keys that clients agreed on, but of the author's own making"
            key = (id(current), rows.field)
            totals[key] = totals.get(key, torch.zeros_like(masks[0])) + masks.sum(0, dtype=masks.dtype)
            senders[key] = senders.get(key, 0) + len(after.senders)
    for current in rounds:
        for field, remainder in current.remainder.items():
            total = totals.get((id(current), field))
            if senders.get((id(current), field)) != len(current.aggregation.survivors) or total is None:
                continue  # the replay ended before all had sent
            if not torch.equal(total, remainder.to(total)):
                return Audit(AuditName.MASKS, Outcome.REFUTED, "masks do not cancel in the sum of those that are left")
    p = float(2 * norm.sf(abs(2 * ones - bits) / math.sqrt(bits))) if bits else 1.0
    if p <= REFUTED_AT:
        return Audit(AuditName.MASKS, Outcome.REFUTED, f"masks are not random: {ones} of {bits} bits are set", p)
    if bare >= _BARE:
        return Audit(AuditName.MASKS, Outcome.REFUTED, f"the masks of {bare} numbers are zero")
    if strange:
        return Audit(AuditName.MASKS, Outcome.UNTESTED, strange)
    words = f"{len(rounds)} aggregations: keys are new for every client and round, and masks cancel in sums"
    return Audit(AuditName.MASKS, Outcome.PASSED, words, p)


def _of_keys(current: MaskingRound, rows: MaskedRows, masks: torch.Tensor) -> bool:
    """Whether ``masks`` [P, S, D] are those that the senders' keys give."""
    for place, own in zip(rows.parts[:: masks.shape[1]].argmax(1).tolist(), masks, strict=True):
        expected = torch.zeros_like(own)
        current.aggregation.mask(place, expected, rows.field)
        if not torch.equal(expected, own):
            return False
    return True
