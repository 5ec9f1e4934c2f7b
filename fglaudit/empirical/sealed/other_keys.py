"""A defense bound anew must have other keys, state the same and keep nothing outside of itself: else who has its code
has its keys, what it states may be made of them, or they lie where others may read them."""

from __future__ import annotations

import dataclasses
import gc
import sys
import time
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from fglaudit.context import Context
from fglaudit.defenses.aggregation.secure_aggregation import MaskingSession
from fglaudit.empirical.sealed.replay import SealedTrace
from fglaudit.facts import Absent
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.he.codec import Codec
from fglaudit.he.packed_rows import PackedRows
from fglaudit.he.weighted_rows import WeightedRows
from fglaudit.interfaces import Defense, DefenseSession
from fglaudit.payloads import MessageBatch
from fglaudit.rng import derive
from fglaudit.sealing import SealedRows
from fglaudit.wire.observing.foreign import is_foreign
from fglaudit.wire.observing.isolation import outside_state

if TYPE_CHECKING:
    from fglaudit.secagg.member import Member


_LEAST_SECONDS, _MOST_SECONDS = 0.2, 2.0
"""For which it is looked at what other threads write."""


def codec_of(rows: SealedRows) -> Codec | None:
    """Return what encrypted ``rows``; None where they are of no scheme of this tool that encrypts."""
    if isinstance(rows, PackedRows):
        return rows.codec
    return rows.scheme.codec if isinstance(rows, WeightedRows) else None


def codecs_of(batch: MessageBatch) -> list[Codec]:
    """Return what encrypted the fields of ``batch``."""
    found = (codec_of(value.sealed) for value in batch.payload.sealed_fields().values())
    return [codec for codec in found if codec is not None]


def sealed_again(session: DefenseSession, batch: MessageBatch, round: int, seed: int) -> MessageBatch:
    """Return ``batch`` as it is sealed in ``round``, by all that ``session`` does where others wrote it."""
    payload = type(batch.payload).from_tensors({n: v.clone() for n, v in batch.payload.tensors().items()})
    later = dataclasses.replace(batch, round=round, payload=payload)
    sealing = session if is_foreign(session) else session.sealed_by()
    return sealing.seal(later, derive(seed, "sealed again", round - batch.round))


def later_too(trace: SealedTrace, rounds: int, seed: int) -> SealedTrace:
    """Return ``trace`` with the first messages of every kind sealed so many ``rounds`` later as well."""
    sealings, masked = list(trace.sealings), list(trace.masked)
    for before, _ in trace.first_of_kinds():
        later = dataclasses.replace(before, round=before.round + rounds)
        sealings.append((later, sealed_again(trace.session, later, later.round, seed)))
        sealing = trace.session.sealed_by()
        masked.append(sealing.rounds.get(type(before.payload)) if isinstance(sealing, MaskingSession) else None)
    return dataclasses.replace(trace, sealings=sealings, masked=masked)


def other_keys_audits(trace: SealedTrace, defense: Defense, context: Context, seed: int) -> tuple[Audit, ...]:
    """Return what a second bind tells of keys."""
    outside, modules, began = outside_state(trace.session), _names(), time.monotonic()
    other = defense.bind(context)
    if _stated(trace.session) != _stated(other):
        why = "what the defense states is something else when it is bound anew, so that it may tell its keys"
        return (Audit(AuditName.KEY_MATERIAL, Outcome.UNTESTED, why),)
    for before, _ in trace.first_of_kinds():
        after = sealed_again(other, before, before.round, seed)
        where = "its module, its classes or its functions" if outside_state(trace.session) != outside else ""
        if not where and (names := _changed(modules)):
            names -= _changed_by_others(time.monotonic() - began)
            where = _kept_again(names, defense, context, before, seed) if names else ""
        if where:
            why = f"the defense keeps something in {where}, where keys outlive their session; keep it in the session"
            return (Audit(AuditName.KEY_MATERIAL, Outcome.UNTESTED, why),)
        ours = {blob for _, sent in trace.sealings for codec in codecs_of(sent) for blob, _ in codec.key_material()}
        if any(blob in ours for codec in codecs_of(after) for blob, _ in codec.key_material()):
            why = "the defense bound anew has the same key: whoever has its code may have the key"
            return (Audit(AuditName.KEY_MATERIAL, Outcome.UNTESTED, why),)
    sealing = other.sealed_by()
    if isinstance(sealing, MaskingSession):
        held = {blob for current in trace.masked if current is not None for blob in _of(current.aggregation.members)}
        if any(blob in held for current in sealing.rounds.values() for blob in _of(current.aggregation.members)):
            why = "masks are of the same keys when the defense is bound anew"
            return (Audit(AuditName.MASKS, Outcome.REFUTED, why),)
    return ()


def _names() -> dict[str, dict[str, object]]:
    """Return what every module holds by name: held here too, so that nothing new comes to lie in its place."""
    found = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    return {name: dict(list(vars(module).items())) for name, module in found}


def _changed(before: Mapping[str, Mapping[str, object]]) -> set[tuple[str, str]]:
    """Return which names of the modules ``before`` hold anything else by now."""
    now = _names()
    return {
        (name, held)
        for name, names in before.items()
        for held, value in now.get(name, {}).items()
        if held not in names or names[held] is not value
    }


def _changed_by_others(seconds: float) -> set[tuple[str, str]]:
    """Return the names that change in so many ``seconds`` though the defense does nothing: other threads have them, or
    who is told whenever memory is collected."""
    before = _names()
    gc.collect()
    time.sleep(min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS))
    return _changed(before)


def _kept_again(names: set[tuple[str, str]], defense: Defense, context: Context, batch: MessageBatch, seed: int) -> str:
    """Return which module gets another of ``names`` whenever the defense is bound and seals; what a library sets up
    when it is first used stays."""
    before = _names()
    sealed_again(defense.bind(context), batch, batch.round, seed)
    return next((f"the module {name}" for name, _ in sorted(names & _changed(before))), "")


def _of(members: Iterable[Member]) -> list[bytes]:
    return [blob for member in members for blob in member.key_material()]


def _stated(session: DefenseSession) -> tuple[str, str]:
    facts = [fact for fact in session.facts() if not isinstance(fact, Absent)]  # who is absent is drawn
    return repr(facts), repr(session.guarantee())
