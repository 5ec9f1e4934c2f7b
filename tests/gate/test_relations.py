"""An epsilon counts for what it says of a record: one for less than a policy asks is worth less."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from gate_runs import GOOD, Change, cells, gate

from fglaudit.execution.exit_code import ExitCode
from fglaudit.execution.folder.stored_record import check_record
from fglaudit.gate.policy import Epsilon
from fglaudit.gate.relations import worth
from fglaudit.guarantees import RELATIONS, Verdict
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, event_of
from fglaudit.privacy.tradeoff import TradeOff

NAMED = "epsilon: {max: 8, unit: node, relation: zeroed out}"
PLAIN = "epsilon: {max: 8, unit: node}"


def with_verdict(verdict: Verdict) -> Change:
    return lambda cell: replace(cell, verdict=verdict)


def test_words_are_those_of_the_accountant() -> None:
    assert set(RELATIONS) == {relation.value for relation in Relation}
    assert Epsilon(max=8, unit="edge").asked_relation == "added or removed"
    assert Epsilon(max=8, unit="node").asked_relation == "replaced"


def test_gaussian_noise_is_worth_what_the_accountant_says_of_the_other_relation() -> None:
    event, delta = compose(event_of("gaussian", 3.0), 4), 1e-5
    zeroed, replaced = (epsilon_of(event, delta, relation) for relation in (Relation.ZERO_OUT, Relation.REPLACE))
    mu = TradeOff.of(event, Relation.ZERO_OUT).mu
    found = worth(zeroed, delta, mu, "zeroed out", "replaced")
    assert found.epsilon == pytest.approx(replaced, rel=1e-6) and found.delta == delta and "zeroed out" in found.note
    without = worth(zeroed, delta, None, "zeroed out", "replaced")
    assert without.epsilon == 2 * zeroed and without.delta == pytest.approx(delta * (1 + math.exp(zeroed)))
    assert without.epsilon >= epsilon_of(event, without.delta, Relation.REPLACE), "group privacy is an upper bound"
    assert worth(3.0, 0.0, None, "added or removed", "replaced").delta == 0
    assert worth(800.0, 1e-5, None, "zeroed out", "replaced").delta == 1


def test_a_replacement_covers_zeros_and_nothing_covers_presence() -> None:
    assert worth(3.0, 1e-5, 0.5, "replaced", "zeroed out").epsilon == 3.0
    assert worth(3.0, 1e-5, 0.5, "zeroed out", "zeroed out").note == ""
    assert "says nothing of one added or removed" in worth(3.0, 1e-5, 0.5, "zeroed out", "added or removed").trouble
    assert "does not name its neighbouring relation" in worth(3.0, 1e-5, 0.5, "", "replaced").trouble
    assert worth(3.0, 1e-5, 0.5, "", "any").epsilon == 3.0


@pytest.mark.parametrize(
    ("verdict", "policy", "code", "said"),
    [
        (replace(GOOD, relation="zeroed out"), PLAIN, ExitCode.GATE, "7.98 for a record zeroed out, which is 15.96 at"),
        (replace(GOOD, relation="zeroed out"), PLAIN, ExitCode.GATE, "delta: wanted at most 1e-05"),
        (replace(GOOD, relation="zeroed out"), NAMED, ExitCode.DONE, "at most 8 per node zeroed out"),
        (replace(GOOD, epsilon=3.0, mu=0.8, relation="zeroed out"), PLAIN, ExitCode.DONE, "for a record zeroed out"),
        (replace(GOOD, relation="replaced"), NAMED, ExitCode.DONE, "got 7.98"),
        (replace(GOOD, relation=""), PLAIN, ExitCode.GATE, "does not name its neighbouring relation"),
        (replace(GOOD, relation=""), "epsilon: {max: 8, unit: node, relation: any}", ExitCode.DONE, "got 7.98"),
    ],
)
def test_a_gate_asks_for_the_relation(
    verdict: Verdict, policy: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = gate(tmp_path, cells(with_verdict(verdict)), policy, capsys)
    assert found == code, out + err
    assert said in out


def test_a_relation_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = gate(tmp_path, cells(), "epsilon: {max: 8, unit: node, relation: replace}", capsys)
    assert code == ExitCode.INPUT and "epsilon.relation" in error and "'replaced'" in error


def test_a_record_holds_a_relation_that_is_one() -> None:
    [cell] = cells(with_verdict(replace(GOOD, relation="zeroed out")), seeds=1)
    check_record(cell.to_json())
    [cell] = cells(with_verdict(replace(GOOD, relation="half")), seeds=1)
    with pytest.raises(ValueError, match="relation cannot be 'half'"):
        check_record(cell.to_json())
