"""Which coalitions of clients open a message whose key is shared out? Tried on ciphertexts that were really sent, and
on the shares of masks' keys that clients really hold.

Of every size below the threshold one coalition is tried, and of the largest size every one; each does all that its
shares allow. What it opens is compared with what was sealed. And a ciphertext that is opened for two clients is open to
the server: each one's partial decryption travels to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession
from fglaudit.empirical.sealed.replay import SealedTrace
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.he.packed_rows import PackedRows
from fglaudit.he.threshold_bfv import ThresholdBfv
from fglaudit.secagg.shares import join

_BY_CHANCE = 0.01
"""Of the slots: what shares that do not suffice open is random modulo a prime of 51 bits."""


def coalitions_audit(trace: SealedTrace, rounds: Sequence[MaskingRound]) -> tuple[Audit, ...]:
    """Return whether fewer clients than the threshold open a ciphertext, or have keys of masks, and all together do;
    nothing where no key is shared out."""
    found: dict[int, Audit] = {}
    for _, after in trace.sealings:
        for value in after.payload.sealed_fields().values():
            rows = value.sealed
            if isinstance(rows, PackedRows) and isinstance(rows.codec, ThresholdBfv) and id(rows.codec) not in found:
                found[id(rows.codec)] = _tried(rows.codec, rows)
    return (*found.values(), *([_shared(trace, rounds)] if rounds else []))


def _shared(trace: SealedTrace, rounds: Sequence[MaskingRound]) -> Audit:
    """Return whether the shares of fewer members than stated give keys or seeds of others."""
    sealing = trace.session.sealed_by()
    for current in rounds:
        members, threshold = current.aggregation.members, current.aggregation.threshold
        least = max(threshold, sealing.defense.least(len(members)) if isinstance(sealing, MaskingSession) else 0)
        pooled = members[: least - 1]
        for owner in members if pooled else ():
            held = {member.number: member.held()[owner.number] for member in pooled if owner.number in member.held()}
            mask, _, seed = owner.key_material()
            secrets = [int.from_bytes(mask, "big"), int.from_bytes(seed, "big")]
            if held and any(one == other for one, other in zip(join(held), secrets, strict=True)):
                why = (
                    f"the shares of {len(held)} of {len(members)} clients give the keys of one, and {least} are stated"
                )
                return Audit(AuditName.COALITIONS, Outcome.REFUTED, why)
            if len(held) < len(pooled):
                why = "members do not hold a share of every other's keys, so that who has them is not known"
                return Audit(AuditName.COALITIONS, Outcome.UNTESTED, why)
    words = f"{len(rounds)} aggregations: shares of one client fewer than stated give no key"
    return Audit(AuditName.COALITIONS, Outcome.PASSED, words)


def _tried(codec: ThresholdBfv, rows: PackedRows) -> Audit:
    sent = next((block for bundle in rows.bundles for block in bundle.blocks.values()), None)
    if sent is None:
        return Audit(
            AuditName.COALITIONS, Outcome.UNTESTED, "no client sent a ciphertext in the rounds that were replayed"
        )
    if (several := int((rows.layout.receivers_of_blocks() > 1).sum())) > 0:
        why = f"all partial decryptions of {several} ciphertexts travel, as they are opened for several clients"
        return Audit(AuditName.COALITIONS, Outcome.REFUTED, why)
    everyone = list(range(codec.parties))
    sealed = codec.opened_by(everyone, [sent])
    if not bool(sealed.any()):
        return Audit(
            AuditName.COALITIONS,
            Outcome.UNTESTED,
            "what was sealed is all zeros, so that openings cannot be told apart",
        )
    tried = [everyone[:size] for size in range(1, codec.parties - 1)]
    tried += [everyone[:left] + everyone[left + 1 :] for left in everyone]
    worst = {len(holders): _right(codec.opened_by(holders, [sent]), sealed) for holders in tried}
    if max(worst.values()) > _BY_CHANCE:
        size = max(worst, key=lambda size: worst[size])
        why = f"{size} of {codec.parties} clients open {100 * worst[size]:.1f} % of the slots of a message"
        return Audit(AuditName.COALITIONS, Outcome.REFUTED, why)
    sizes = f"1 to {codec.parties - 1}" if codec.parties > 2 else "1"
    words = f"{len(tried)} coalitions of {sizes} of {codec.parties} clients open nothing of a message, all together do"
    return Audit(AuditName.COALITIONS, Outcome.PASSED, words)


def _right(opened: Tensor, sealed: Tensor) -> float:
    """Return the share of the slots that are not empty and right."""
    there = sealed != 0
    return float((opened == sealed)[there].double().mean()) if bool(there.any()) else float(torch.equal(opened, sealed))
