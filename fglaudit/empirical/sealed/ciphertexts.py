"""Audits of what travels sealed: is it a scheme that is known here, fresh every time, and without its keys in sight?

A replay of the first rounds seals for real (:mod:`fglaudit.empirical.sealed.replay`). Then its messages are sealed once
more: by the same session in a later round, by a fresh one, and with every client sending the same. No two units of
equal plaintexts may be equal. That lattice ciphertexts or stream ciphers hide what they should is not tested here, it
rests on the libraries: so only schemes of SEAL (through TenSEAL), of OpenFHE and of ``fglaudit.secagg``, with keys that
this tool generated, are verified.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound, MaskingSession
from fglaudit.empirical.sealed.ciphertext_bytes import LEAST, is_known, units
from fglaudit.empirical.sealed.clear_parts import clear_parts_audit
from fglaudit.empirical.sealed.coalitions import coalitions_audit
from fglaudit.empirical.sealed.key_search import key_audit
from fglaudit.empirical.sealed.masks import masks_audit
from fglaudit.empirical.sealed.other_keys import codec_of, codecs_of, later_too, other_keys_audits, sealed_again
from fglaudit.empirical.sealed.own_parts import changed_codec, changed_masking
from fglaudit.empirical.sealed.replay import SealedTrace, sealed_replay
from fglaudit.errors import FglauditError
from fglaudit.facts import Sealed
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.he.bfv import Bfv
from fglaudit.he.ckks import Ckks, flooding_of
from fglaudit.he.codec import Codec, SharedKeyCodec
from fglaudit.he.keys import ClientKeys
from fglaudit.he.row_sealer import weight_bound
from fglaudit.he.threshold_bfv import ThresholdBfv
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol
from fglaudit.payloads import MessageBatch
from fglaudit.sealing import SealedRows
from fglaudit.secagg.rows import MaskedRows
from fglaudit.tracebacks import kept
from fglaudit.wire.observing.foreign import is_foreign

_LATER = 1000
"""Rounds later in which a message is sealed again: not one of the run's."""
_FAR = 10 * _LATER
"""Rounds later in which seals of other authors are looked at as well: they may be others than in the first ones."""
_FEW = 3
"""Messages that are sealed again where clients do not need one another for it."""


def ciphertext_audits(
    protocol: FederatedProtocol,
    graph: FederatedGraph,
    defense: Defense,
    context: Context,
    *,
    seed: int,
    device: torch.device,
    last: Mapping[str, int] | None = None,
) -> tuple[Audit, ...]:
    """Return the audits of a defense that seals.

    Args:
        last: by payload the round up to which the run may have sealed it; None: nothing is known of later rounds.
    """
    try:
        trace = sealed_replay(protocol, graph, defense, context, seed=seed, device=device)
    except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
        why = f"sealed messages could not be replayed: {kept(error, 'a replay of sealed messages')}"
        return (Audit(AuditName.SEALED, Outcome.UNTESTED, why),)
    if not trace.sealings:
        return (
            Audit(AuditName.SEALED, Outcome.UNTESTED, "no message was sealed in the first rounds, which were replayed"),
        )
    foreign = is_foreign(trace.session)
    if foreign:
        try:
            trace = later_too(trace, _FAR, seed)
        except Exception as error:  # as above
            why = f"messages of later rounds could not be sealed: {kept(error, 'sealing messages of later rounds')}"
            return (Audit(AuditName.SEALED, Outcome.UNTESTED, why),)
    codecs, rounds = _codecs(trace), _rounds(trace)
    scheme = _scheme_audit(trace, codecs, context)
    try:
        fresh = _fresh_audit(trace, defense, context, seed, foreign=foreign)
        others = other_keys_audits(trace, defense, context, seed) if foreign else ()
    except Exception as error:  # as above
        why = f"messages could not be sealed again: {kept(error, 'sealing messages again')}"
        fresh, others = Audit(AuditName.FRESH_CIPHERTEXTS, Outcome.UNTESTED, why), ()
    known = bool(codecs or rounds)
    beside = _beside(trace, defense.bind(context) if foreign else None, seed, last or {})
    why = "what a key of this scheme looks like is not known here"
    keys = key_audit(trace.clear, codecs, rounds) if known else Audit(AuditName.KEY_MATERIAL, Outcome.UNTESTED, why)
    masks = [masks_audit(trace, rounds, foreign=foreign)] if rounds else []
    return (scheme, fresh, *others, *beside, keys, *masks, *coalitions_audit(trace, rounds))


def _codecs(trace: SealedTrace) -> list[Codec]:
    return list({id(codec): codec for _, after in trace.sealings for codec in codecs_of(after)}.values())


def _rounds(trace: SealedTrace) -> list[MaskingRound]:
    return list({id(current): current for current in trace.masked if current is not None}.values())


def _scheme_audit(trace: SealedTrace, codecs: Iterable[Codec], context: Context) -> Audit:
    """Return whether all that is sealed is of a library that is known, under keys that this tool generated."""
    words: dict[str, None] = {}
    for (_, after), current in zip(trace.sealings, trace.masked, strict=True):
        for name, value in after.payload.sealed_fields().items():
            rows, field = value.sealed, f"{name} of {type(after.payload).__name__}"
            if not is_known(rows) or (type(rows) is MaskedRows and not _tools_own(trace.session, current)):
                why = f"{field} is sealed by the author's own code ({type(rows).__name__}), of no library known here"
                return Audit(AuditName.SEALED, Outcome.UNTESTED, why)
            if type(rows) is MaskedRows:
                assert current is not None
                if why := changed_masking(trace.session.sealed_by(), current):
                    return Audit(AuditName.SEALED, Outcome.UNTESTED, f"{field}: {why}")
                words["secure aggregation: X25519, HKDF and ChaCha20 of `cryptography`, keys of every client"] = None
    if why := _keys_too_many(trace):
        return Audit(AuditName.SEALED, Outcome.REFUTED, why)
    for codec in codecs:
        if type(codec) is ThresholdBfv:
            degree, holders = codec.parameters.degree, codec.parties
            words[f"bfv of OpenFHE, degree {degree}, a share of the key for each of {holders} clients"] = None
            continue
        own = isinstance(codec, SharedKeyCodec) and type(codec.keys) is ClientKeys
        if type(codec) not in (Bfv, Ckks) or not own:
            why = f"keys or codec of {type(codec).__name__} are the author's own, not generated by this tool"
            return Audit(AuditName.SEALED, Outcome.UNTESTED, why)
        if why := changed_codec(codec):
            return Audit(AuditName.SEALED, Outcome.UNTESTED, why)
        words[f"{codec.parameters.scheme} of SEAL, degree {codec.parameters.degree}, keys of this tool"] = None
        if isinstance(codec, Ckks):
            stated = [fact.flooding for fact in trace.session.facts() if isinstance(fact, Sealed)]
            if not codec.flooding > 0 or not any(math.isclose(codec.flooding, s, rel_tol=1e-6) for s in stated):
                why = "ckks shows its key by the noise of what it opens, and no flooding noise as used is stated"
                return Audit(AuditName.SEALED, Outcome.UNTESTED, why)
            if codec.flooding < (least := _least_flooding(trace, codec, context)):
                why = (
                    f"ckks is opened with flooding noise of {codec.flooding:.3g}, and hides its key from {least:.3g} on"
                )
                return Audit(AuditName.SEALED, Outcome.UNTESTED, why)
            words[f"opened with flooding noise of standard deviation {codec.flooding:.3g}"] = None
    return Audit(AuditName.SEALED, Outcome.PASSED, ", ".join(words))


def _least_flooding(trace: SealedTrace, codec: Ckks, context: Context) -> float:
    """Return the noise that hides the key where as much is opened as the protocol states of what ``codec`` seals."""
    kinds = {type(after.payload) for _, after in trace.sealings if codec in codecs_of(after)}
    sealed = [context.aggregates[kind] for kind in kinds if kind in context.aggregates]
    found = [
        flooding_of(
            codec.parameters, min(weight_bound(a), float(a.summands.max())), a.releases * a.columns * len(a.rows)
        )
        for a in sealed
    ]
    return min(found, default=flooding_of(codec.parameters, 1.0, 1)) * (1 - 1e-6)


def _keys_too_many(trace: SealedTrace) -> str:
    """Return in words which message is said to take more clients' keys than open it."""
    for (_, after), current in zip(trace.sealings, trace.masked, strict=True):
        try:
            said = trace.session.readers(after)
        except FglauditError:  # masked messages of a round that is over: nobody opens them any more
            continue
        needed = [_keys_needed(value.sealed, current) for value in after.payload.sealed_fields().values()]
        least = min((keys for keys in needed if keys is not None), default=said)
        if said > least:
            kind = type(after.payload).__name__
            return f"{kind} is said to take the keys of {said} clients, and those of {least} open it"
    return ""


def _keys_needed(rows: SealedRows, current: MaskingRound | None) -> int | None:
    """Return how many clients' keys open ``rows``; None where that is not known here."""
    if isinstance(rows, MaskedRows):
        return None if current is None else current.aggregation.threshold
    codec = codec_of(rows)
    if isinstance(codec, ThresholdBfv):
        return codec.parties
    return 1 if isinstance(codec, SharedKeyCodec) else None


def _tools_own(session: DefenseSession, current: MaskingRound | None) -> bool:
    return current is not None and type(session.sealed_by()) is MaskingSession


def _fresh_audit(trace: SealedTrace, defense: Defense, context: Context, seed: int, *, foreign: bool) -> Audit:
    """Return whether equal plaintexts give unequal bytes: over rounds, clients and keys."""
    compared = 0
    for before, sent in trace.first_of_kinds():
        kind = type(before.payload)
        known = all(is_known(value.sealed) for value in sent.payload.sealed_fields().values())
        own = isinstance(trace.session.sealed_by(), MaskingSession)
        part = before if own else before.select(torch.arange(len(before.senders)) < _FEW)
        alike = _alike(part)
        again = _units_again(trace.session, part, 1, seed)
        others = {
            "the same message twice": [_units_again(trace.session, part, 2, seed), units(sent) if own else {}],
            "under other keys": [_units_again(defense.bind(context), part, 1, seed + 1)],
        }
        same = _units_again(trace.session, alike, 3, seed)
        if not known or foreign:
            zero = _units_again(trace.session, _zeros(part), 4, seed)
        if not known:
            carries = {place for place, blob in again.items() if zero.get(place) != blob}
            again = {place: blob for place, blob in again.items() if place in carries}
            same = {place: blob for place, blob in same.items() if place in carries}
        held = {blob for blob in again.values() if len(blob) >= LEAST}
        compared += len(held)
        for words, sealings in others.items():
            if any(blob in held for sealing in sealings for blob in sealing.values()):
                return _unfresh(f"{kind.__name__}: equal plaintexts give equal bytes, {words}")
        if _repeats(same.values()):
            return _unfresh(f"{kind.__name__}: equal plaintexts of two clients give equal bytes")
        if (
            known
            and foreign
            and _repeats([*zero.values(), *_units_again(trace.session, _zeros(part), 5, seed).values()])
        ):
            return _unfresh(f"{kind.__name__}: messages of zeros give equal bytes")
    if not compared:
        return Audit(
            AuditName.FRESH_CIPHERTEXTS,
            Outcome.UNTESTED,
            "no bytes were found in sealed messages that depend on what is sealed",
        )
    return Audit(
        AuditName.FRESH_CIPHERTEXTS,
        Outcome.PASSED,
        f"{compared} units sealed again: equal plaintexts give unequal bytes",
    )


def _unfresh(why: str) -> Audit:
    return Audit(AuditName.FRESH_CIPHERTEXTS, Outcome.REFUTED, why)


def _repeats(units: Iterable[bytes]) -> bool:
    long = [blob for blob in units if len(blob) >= LEAST]
    return len(set(long)) < len(long)


def _beside(trace: SealedTrace, other: DefenseSession | None, seed: int, last: Mapping[str, int]) -> tuple[Audit, ...]:
    """Return whether what is shown beside the ciphertexts of every kind of message depends on what they hold, or on
    keys: ``other`` was bound anew. Encryption of another author is tried in every round up to the ``last`` one, since
    it may differ in any of them."""
    found: list[Audit] = []
    for before, _ in trace.first_of_kinds():
        own = isinstance(trace.session.sealed_by(), MaskingSession)
        part = before if own else before.select(torch.arange(len(before.senders)) < _FEW)
        rounds = [part.round]
        if other is not None:
            # masks of a round are used once, so that rounds next to each other cannot be tried
            end = part.round if own else last.get(type(before.payload).__name__, part.round)
            rounds += [*range(part.round + 1, end + 1), part.round + _FAR]
        try:
            found += [
                clear_parts_audit(trace.session, dataclasses.replace(part, round=each), seed, other) for each in rounds
            ]
        except Exception as error:  # a plugin's own code runs here: whatever it raises, it must not end a run
            why = f"messages with other values could not be sealed: {kept(error, 'sealing messages with other values')}"
            found.append(Audit(AuditName.BESIDE_CIPHERTEXTS, Outcome.UNTESTED, why))
    return tuple(found)


def _units_again(session: DefenseSession, batch: MessageBatch, times: int, seed: int) -> dict[str, bytes]:
    return units(sealed_again(session, batch, batch.round + times * _LATER, seed))


def _alike(batch: MessageBatch) -> MessageBatch:
    """Return the messages with the content of the first in place of every one."""
    count = len(batch.senders)
    if batch.splits is None:
        return dataclasses.replace(batch, payload=batch.payload.select(torch.zeros(count, dtype=torch.long)))
    rows = int((batch.splits[1] - batch.splits[0]).item())
    payload = batch.payload.select(torch.arange(rows, device=batch.splits.device).repeat(count))
    return dataclasses.replace(batch, payload=payload, splits=rows * torch.arange(count + 1))


def _zeros(batch: MessageBatch) -> MessageBatch:
    tensors = batch.payload.tensors()
    zeros = {n: torch.zeros_like(v) if v.is_floating_point() else v for n, v in tensors.items()}
    return dataclasses.replace(batch, payload=type(batch.payload).from_tensors(zeros))
