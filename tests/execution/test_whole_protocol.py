"""What the last rows of guarantees.csv say of everything that an observer sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fglaudit.execution.whole_protocol import whole_protocol
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.guarantees import FieldState, Protection, Verdict, Word

EPSILON = Verdict(Word.VERIFIED, "audits passed", epsilon=4.0, unit="reporting node", not_covered="edges")


def record(*states: tuple[str, str, str], verdict: Verdict | None = EPSILON, word: str = "verified") -> CellRecord:
    """A cell of two observers with rows of (side, payload, state)."""
    row = Finding("s", "0" * 16, "d", "p", 2, "x", "", "honest", "none", "", 0, "server", "", "a", Status.OK)
    fields = tuple(FieldState(side, payload, "values", Protection(state), "") for side, payload, state in states)
    findings = tuple(replace(row, observer=one, guarantee=word) for one in ("server", "client:each"))
    return CellRecord("0" * 16, {}, findings, verdict=verdict, fields=fields)


def words(*states: tuple[str, str, str], verdict: Verdict | None = EPSILON, word: str = "verified") -> list[str]:
    return [state.state for state in whole_protocol(record(*states, verdict=verdict, word=word))]


COVERED, STILL = ("server", "ClassReports", "covered"), ("clients", "HopSums", "not seen to move")


def test_private_where_nothing_is_left_and_the_epsilon_is_verified() -> None:
    server, client = whole_protocol(record(COVERED, STILL, ("", "report", "nothing")))
    assert (server.state, client.state) == ("private", "private")
    assert server.reason == "epsilon 4 for a reporting node, composed over all releases (verified); edges"


@pytest.mark.parametrize("state", ["nothing", "unexamined", "attacked"])
def test_one_field_that_nothing_protects_opens_it_for_who_sees_it(state: str) -> None:
    rows = COVERED, STILL, ("server", "ModelUpdate", state)
    assert words(*rows) == ["open", "private"]
    assert whole_protocol(record(*rows))[0].reason == f"not seen to be protected: ModelUpdate.values: {state}"
    assert words(COVERED, ("client:each", "ModelUpdate", state)) == ["private", "open"]


def test_an_epsilon_that_is_not_verified_is_claimed() -> None:
    assert words(COVERED, verdict=replace(EPSILON, word=Word.CLAIMED), word="claimed") == ["claimed", "claimed"]


def test_what_holds_and_bounds_nothing_is_open() -> None:
    assert words(COVERED, verdict=replace(EPSILON, epsilon=10.1)) == ["open", "open"]
    assert words(COVERED, verdict=replace(EPSILON, epsilon=10.0, delta=1e-5)) == ["private", "private"]
    cell = replace(record(COVERED, verdict=replace(EPSILON, delta=0.02)), partition_facts={"client_sizes": [30, 30]})
    server, _ = whole_protocol(cell)
    assert server.state == "open" and server.reason.startswith("a delta of 0.02 with 60 nodes allows for publishing")


def test_refuted_or_promised_to_nobody_is_open() -> None:
    assert words(COVERED, verdict=replace(EPSILON, word=Word.REFUTED), word="refuted") == ["open", "open"]
    assert words(STILL, verdict=Verdict(Word.NONE), word="none") == ["open", "open"]
    assert words(STILL, verdict=None, word="") == ["open", "open"]


def test_sealed_without_an_epsilon() -> None:
    seal = Verdict(Word.VERIFIED, "audits passed")
    assert words(("server", "NeighborSums", "sealed"), STILL, verdict=seal) == ["sealed", "open"]


def test_nothing_is_said_where_no_field_was_looked_at() -> None:
    assert words(("", "report", "nothing")) == []


def test_what_protects_labels_stands_beside_the_epsilon_of_rows_for_who_is_sent_them() -> None:
    cell = record(COVERED, STILL)
    reported = FieldState("server", "ClassReports", "labels", Protection.COVERED, "epsilon 2 of a label")
    server, client = whole_protocol(replace(cell, fields=(*cell.fields, reported)))
    assert server.state == "private" and server.reason.endswith("; labels sent: epsilon 2 of a label")
    assert "labels" not in client.reason
    bare = replace(reported, state=Protection.NOTHING, reason="labels are sent as they are")
    assert [row.state for row in whole_protocol(replace(cell, fields=(*cell.fields, bare)))] == ["open", "private"]
