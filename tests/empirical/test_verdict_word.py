"""Which audits "verified" waits for: all, but those that can only speak against a guarantee."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from fglaudit.empirical.audits.trade_off import ENOUGH
from fglaudit.empirical.verdict_word import verdict_of
from fglaudit.guarantees import Audit, AuditName, MeasuredCurve, Outcome, Verdict, Word, verdict_from_json
from fglaudit.interfaces import Guarantee
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation, epsilon_of, event_of

EVENT = event_of("gaussian", 2.0)
EPSILON = epsilon_of(EVENT, 1e-5, Relation.REPLACE)
ACCOUNTED = Accounted(EPSILON, 1e-5, "node", Relation.REPLACE, EVENT, ())
PROMISE = Guarantee("noise", epsilon_claimed=EPSILON, delta=1e-5, unit="node", relation=Relation.REPLACE)
CURVE = Audit(AuditName.TRADE_OFF, Outcome.PASSED, "as stated", 1.0, power=ENOUGH)
AGAINST_ALONE = {"releases", "distinguisher", "planted rows", "whole training"}


def with_audit(name: AuditName, outcome: Outcome) -> Verdict:
    return verdict_of(PROMISE, ACCOUNTED, [*([CURVE] if name != CURVE.name else []), Audit(name, outcome, "why")])


@pytest.mark.parametrize("name", AuditName)
def test_an_audit_that_could_not_be_run_keeps_a_guarantee_from_being_verified(name: AuditName) -> None:
    """Of an audit that was added and forgotten elsewhere, too: what is not waited for stands in a list."""
    found = with_audit(name, Outcome.UNTESTED)
    assert found.word is (Word.VERIFIED if name in AGAINST_ALONE else Word.CLAIMED), found.reason


def test_the_page_names_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audits.md").read_text()
    listed = re.search(r"of the others only (.*?) may be untested", page)
    assert listed is not None and set(re.findall("`(.*?)`", listed[1])) == AGAINST_ALONE


@pytest.mark.parametrize("name", AuditName)
def test_every_audit_refutes(name: AuditName) -> None:
    assert with_audit(name, Outcome.REFUTED).word is Word.REFUTED


def test_a_bound_above_the_accounted_epsilon_refutes_whatever_the_test_of_the_curve_says() -> None:
    """Reports were red, while gates passed and the exit code was 0."""
    for shown, word in ((0.9, Word.VERIFIED), (1.1, Word.REFUTED)):
        curve = MeasuredCurve("a row", shown * EPSILON, 9.0, 4000, (0.1,), (0.5,), 0.01, (0.1,), (0.5,))
        found = verdict_of(PROMISE, ACCOUNTED, [dataclasses.replace(CURVE, p_value=1e-3, measured=curve)])
        assert found.word is word
        assert ("replays show an epsilon of at least" in found.reason) is (word is Word.REFUTED)


def test_what_was_verified_is_claimed_where_something_is_found_later() -> None:
    verified, refuted = verdict_of(PROMISE, ACCOUNTED, [CURVE]), with_audit(AuditName.REACH, Outcome.REFUTED)
    later = Audit(AuditName.CODE, Outcome.UNTESTED, "looks for the audit")
    assert verified.word is Word.VERIFIED
    claimed = verified.unverified("it looks", later)
    assert (claimed.word, claimed.reason, claimed.audits) == (Word.CLAIMED, "it looks", (CURVE, later))
    still = refuted.unverified("it looks", later)
    assert (still.word, still.reason) == (Word.REFUTED, refuted.reason) and still.audits[-1] == later


def test_a_record_with_an_audit_that_nobody_knows_is_damaged() -> None:
    stored = json.loads(json.dumps(dataclasses.asdict(verdict_of(PROMISE, ACCOUNTED, [CURVE]))))
    assert verdict_from_json(stored).audits[0].name is AuditName.TRADE_OFF
    stored["audits"][0]["name"] = "trade off"
    with pytest.raises(ValueError, match="trade off"):
        verdict_from_json(stored)
