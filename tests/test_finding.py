"""What follows from a row's reason follows from its typed cause, whatever the words of the reason are."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from report_runs import DEFENSES, PROTOCOLS, make_cell

from fglaudit.finding import COLUMNS, NOT_RUN, RAISED, Cause, CellRecord, Finding, Reason, Status
from fglaudit.guarantees import FieldState, Protection, Word
from fglaudit.quantities.base import NO_ROW_REACHES

CELL = make_cell(PROTOCOLS[0], DEFENSES[0], 0, observers=[0])
ROW = CELL.findings[0]


@pytest.mark.parametrize("reason", [NOT_RUN, NO_ROW_REACHES, Reason(f"{RAISED}it raised", Cause.RAISED)])
def test_a_reason_decides_by_its_cause_and_not_by_its_words(reason: Reason) -> None:
    ended = ROW.ended(Status.FAILED, reason)
    quoted = ROW.ended(Status.FAILED, str(reason))  # such as an error that quotes it
    assert ended.reason == quoted.reason and type(ended.reason) is str
    assert ended.cause is reason.cause and quoted.cause is Cause.OTHER
    assert not (quoted.never_run or quoted.sealed or quoted.raised) and quoted.lost


def test_causes_are_kept_in_records_and_stand_in_no_table() -> None:
    state = FieldState("server", "NeighborSums", "sums", Protection.SEALED, "in other words", Word.VERIFIED)
    record = replace(CELL, findings=(ROW.ended(Status.FAILED, NOT_RUN),), fields=(state, replace(state, unstated=True)))
    back = CellRecord.from_json(json.loads(json.dumps(record.to_json())))
    assert back == record and back.findings[0].never_run and back.fields[0].shut
    assert {f.name for f in fields(Finding)} - set(COLUMNS) == {"cause"}
    assert FieldState.columns() == ("observer", "payload", "field", "state", "reason")


def test_the_word_of_a_seal_is_no_text() -> None:
    state = FieldState("server", "NeighborSums", "sums", Protection.SEALED, "verified: its author says", Word.CLAIMED)
    assert not state.shut and not state.unstated
