"""Fields of noisy messages that are said not to depend on the record: nothing in them may tell the two worlds apart.

With equal draws they must be equal in both worlds. Where they are not, a model is trained on half of further replays
and tested on the other half against the curve of nothing to be seen (epsilon 0).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.empirical.audits.distinguisher import learned
from fglaudit.empirical.estimates.curve_test import curve_test
from fglaudit.empirical.replays.captured_stage import CapturedStage
from fglaudit.empirical.replays.message_stage import MessageStage
from fglaudit.empirical.replays.stages import Pair
from fglaudit.empirical.replays.staging import Staged
from fglaudit.empirical.replays.strongest_messages import repeated
from fglaudit.guarantees import REFUTED_AT, Audit, AuditName, Outcome
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.tradeoff import TradeOff
from fglaudit.rng import derive

REPLAYS = 400
NOTHING = TradeOff.gaussian(0.0)


def noiseless_fields_audit(staged: Staged, *, seed: int) -> Audit | None:
    """Return the audit of all fields that get no noise; None where every field gets it."""
    stages = [stage for stages in staged.stages.values() for stage in stages]
    listed = [
        (stage, pair)
        for stage in stages
        if isinstance(stage, CapturedStage)
        or (isinstance(stage, MessageStage) and set(stage.fields) != set(stage.template.tensors()))
        for pair in list(stage.pairs(derive(seed, "audits", "pairs")))[:2]
    ]
    looked_at = 0
    moved: list[tuple[float, str]] = []
    for count, (stage, pair) in enumerate(listed):
        rng = derive(seed, "audits", "fields", count)
        state = rng.get_state()
        there = _others(stage, pair.present, 1, rng)
        rng.set_state(state)
        gone = _others(stage, pair.absent, 1, rng)
        looked_at += there.shape[1]
        if there.shape == gone.shape and torch.equal(there, gone):
            continue
        moved.append((_told_apart(stage, pair, seed, count), f"{stage.noise.payload}, {pair.name}"))
    if not looked_at:
        return None
    p = min(1.0, min((p for p, _ in moved), default=1.0) * max(1, len(moved)))
    if p <= REFUTED_AT:
        where = min(moved)[1]
        return Audit(
            AuditName.FIELDS, Outcome.REFUTED, f"a field without noise tells whether the record is there: {where}", p
        )
    if moved:
        return Audit(
            AuditName.FIELDS, Outcome.UNTESTED, f"a field without noise moves with the record: {moved[0][1]}", p
        )
    return Audit(
        AuditName.FIELDS, Outcome.PASSED, "fields without noise are the same with the record and without it", p
    )


def _told_apart(stage: MessageStage | CapturedStage, pair: Pair, seed: int, count: int) -> float:
    """Return the p-value of "nothing is to be seen" in these fields."""
    rng = derive(seed, "audits", "fields replays", count)
    worlds = [_others(stage, given, REPLAYS, rng) for given in (pair.present, pair.absent)]
    if worlds[0].shape != worlds[1].shape:
        return 0.0
    split = derive(seed, "audits", "fields split", count)
    tested = [
        curve_test(there, gone, NOTHING, rng=split)
        for _, there, gone in learned(worlds[0], worlds[1], seed, linear=True)
    ]
    return min(1.0, len(tested) * min(test.p_value for test in tested))


def _others(stage: MessageStage | CapturedStage, given: object, copies: int, rng: torch.Generator) -> Tensor:
    """Return the fields without noise [copies, n] of one release."""
    session = stage.fresh()
    if isinstance(stage, CapturedStage):
        assert isinstance(given, list)
        parts = [_read(session.release(repeated(batch, copies), rng), stage.fields, copies) for batch in given]
        return torch.cat(parts, 1)
    assert isinstance(given, Tensor)
    senders = torch.arange(copies) % stage.clients
    server = torch.full_like(senders, SERVER)
    payload = stage.payload(given.expand(copies, -1))
    splits = torch.arange(copies + 1) if payload.ragged else None
    ways = (server, senders) if stage.noise.by_server else (senders, server)
    return _read(session.release(MessageBatch(stage.first, *ways, payload, splits), rng), stage.fields, copies)


def _read(payload: Payload, noised: Sequence[str], copies: int) -> Tensor:
    """Return the fields that are not ``noised``; with none named, those that are not floating-point."""
    others = [
        value.double().reshape(copies, -1)
        for name, value in payload.tensors().items()
        if (name not in noised if noised else not value.is_floating_point())
    ]
    return torch.cat(others, 1) if others else torch.empty(copies, 0, dtype=torch.float64)
