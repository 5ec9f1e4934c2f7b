"""What audits that compare with the facts say where a defense does more than it states, and that hides no less."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from fglaudit.facts import Additive, Fact, Field, Unstated
from fglaudit.guarantees import Audit, AuditName, Outcome

_OF_FACTS = (AuditName.SENSITIVITY, AuditName.REACH, AuditName.NOISE, AuditName.DEPENDENCE)
"""Audits that compare what left with the facts, and not what can be told of a record with the guarantee."""
_MERGED = "other than stated, which does not say that less is hidden"
"""Different values left as the same one, so more was done than is stated, maybe to values that noise hides already."""
_AFTERWARDS = "the noise is as stated, and what is done to noisy values is not stated, which hides no less"


def not_blamed(
    audits: list[Audit], unstated: Sequence[Unstated], facts: Sequence[Fact], noise_comes_first: Callable[[], bool]
) -> list[Audit]:
    """Return ``audits`` without the refutations that only say that more is done than facts state, where that hides no
    less: values are merged, or noisy ones are changed.

    Args:
        noise_comes_first: whether what is not stated is done to noisy values alone; asked where it matters, as it takes
            replays.
    """
    if any(change.merges for change in unstated):
        return [_against_facts_alone(audit, _MERGED) for audit in audits]
    excused = [_against_facts_alone(audit, _AFTERWARDS) for audit in audits]
    after_noise = bool(unstated) and all(_has_noise(change, facts) for change in unstated)
    if excused == audits or not after_noise or not noise_comes_first():
        return audits
    first = dataclasses.replace(excused[0], detail=f"{_AFTERWARDS}: say in a fact what that is; {excused[0].detail}")
    return [first, *excused[1:]]


def _against_facts_alone(audit: Audit, why: str) -> Audit:
    """Return an audit that compares with what is stated as untested, if it refutes, and say ``why``."""
    if audit.outcome is not Outcome.REFUTED or audit.name not in _OF_FACTS:
        return audit
    return dataclasses.replace(audit, outcome=Outcome.UNTESTED, detail=f"{why}: {audit.detail}")


def _has_noise(change: Unstated, facts: Sequence[Fact]) -> bool:
    """Whether noise is stated on what was changed: what is done elsewhere is not done to noisy values."""
    noisy = [fact.target for fact in facts if isinstance(fact, Additive)]
    target = change.target
    if not isinstance(target, Field):
        return target in noisy
    return any(isinstance(n, Field) and n.meets(target.payload, target.name, target.direction) for n in noisy)
