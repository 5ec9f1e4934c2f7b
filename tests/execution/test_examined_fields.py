"""Fields that nothing protects, after attacks: attacked, or unexamined."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fglaudit.execution.examined_fields import after_attacks, unread
from fglaudit.finding import OTHERS, Finding, Status
from fglaudit.guarantees import FieldState, Protection

OPEN = FieldState("server", "Latents", "values", Protection.NOTHING, "moves")
_BLANK: dict[str, Any] = {
    f.name: 0 if f.name == "seed" else ""
    for f in dataclasses.fields(Finding)
    if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
}
ROW = Finding(**_BLANK)
GOOD = dataclasses.replace(ROW, observer="server", attack="decoder", status=Status.OK, adapted="yes")


FIELDS = {"decoder": ("Latents", "values"), "other": ("ModelUpdate", "vector"), "ids": ("Latents", "nodes")}


def read_by(findings: tuple[Finding, ...]) -> dict[tuple[str, str, str], set[tuple[str, str]]]:
    return {(f.observer, f.observer_knowledge, f.attack): {FIELDS[f.attack]} for f in findings if f.attack}


def states(*findings: Finding, state: FieldState = OPEN) -> list[tuple[str, str]]:
    found = after_attacks([state], findings, read_by(findings))
    return [(row.observer, row.state) for row in found]


def test_an_attack_that_works_examines_what_it_reads() -> None:
    assert states(GOOD) == [("server", "attacked")]
    assert states(dataclasses.replace(GOOD, attack="other")) == [("server", "unexamined")]
    assert states(dataclasses.replace(GOOD, attack="ids")) == [("server", "unexamined")]  # another field of it
    assert states(dataclasses.replace(GOOD, status=Status.BROKEN_ATTACK)) == [("server", "unexamined")]
    assert states(dataclasses.replace(GOOD, adapted="no: Additive")) == [("server", "unexamined")]


def test_what_another_authors_attack_read_is_kept_where_it_read() -> None:
    """Its word examines nothing, but that it read the field is observed."""
    own = dataclasses.replace(GOOD, adapted=f"no: {OTHERS}")
    for findings, others in (
        ((own,), ("decoder",)),
        ((GOOD,), ()),
        ((dataclasses.replace(own, attack="ids"),), ()),
        ((dataclasses.replace(own, status=Status.BROKEN_ATTACK),), ()),
        ((dataclasses.replace(own, observer="wire"), GOOD), ("decoder",)),
    ):
        found = after_attacks([OPEN], findings, read_by(findings))
        assert tuple(name for row in found for name in row.others) == others
    assert FieldState.from_json(json.loads(json.dumps(dataclasses.asdict(found[-1])))) == found[-1]


def test_observers_that_do_not_see_it_and_fields_that_are_protected() -> None:
    assert states(dataclasses.replace(GOOD, observer="client:0")) == [("server", "nothing")]
    assert states(dataclasses.replace(GOOD, observer="wire")) == [("wire", "attacked")]
    assert states(GOOD, state=dataclasses.replace(OPEN, state=Protection.COVERED)) == [("server", "covered")]


def notes(*findings: Finding, state: FieldState = OPEN) -> tuple[str, ...]:
    declared = {"decoder": {"Latents"}, "other": {"ModelUpdate"}, "ids": {"Latents"}}
    return unread([state], findings, declared, read_by(findings))


def test_what_was_sent_and_nobody_read_is_named() -> None:
    assert notes(GOOD) == ()
    (idle,) = notes(dataclasses.replace(GOOD, status=Status.NOT_APPLICABLE))
    assert idle.startswith("nobody read Latents.values: ") and "could run" in idle
    (alone,) = notes(dataclasses.replace(GOOD, attack="ids"))
    assert alone == "nobody read Latents.values: the attacks that ran on Latents read other fields of it"
    (strange,) = notes(GOOD, state=dataclasses.replace(OPEN, payload="Sketches"))
    assert strange == "nobody read Sketches.values: no attack here knows Sketches"


def test_what_carries_nothing_need_not_be_read() -> None:
    for state in (Protection.SEALED, Protection.STILL):
        assert notes(state=dataclasses.replace(OPEN, state=state)) == ()
    assert notes(state=dataclasses.replace(OPEN, payload="report", field="accuracy")) == ()
    assert notes(state=dataclasses.replace(OPEN, field="presence")) == ()
