"""What a policy may not ask, and what no run can show, is one line of error and exit code 2; by the command itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gate_runs import FEATURES, cells, gate, rows

from fglaudit.execution.exit_code import ExitCode

WRONG = [
    ("observer: {}", "did you mean 'observers'"),
    ('observers: {"client:each": {feature: {verdict: held}}}', "did you mean 'features'"),
    ('observers: {"client:al": {features: {verdict: held}}}', "did you mean 'client:each'"),
    ("observers: {server: {edges: {verdict: held}}}", "quantity that an attack of this suite infers"),
    ("observers: {server: {feature rows: {verdict: held}}}", "did you mean 'features'"),
    ("observers: {server: {clients of neighbours: {verdict: held}}}", "did you mean 'neighboring-clients'"),
    ("observers: {server: {rows of unnamed nodes: {verdict: held}}}", "did you mean 'held-rows'"),
    ("observers: {server: {Rows held: {verdict: held}}}", "did you mean 'held-rows'"),
    ("observers: {server: {membership: {verdict: held}}}", "did you mean 'training-membership'"),
    ("observers: {server: {features: {verdict: hold}}}", "verdict"),
    ("observers: {server: {features: {advantage: 0.1}}}", "did you mean 'advantage_high'"),
    ("observers: {server: {features: {advantage_high: 5}}}", "must be below 1"),
    ("observers: {server: {features: {}}}", "a threshold is needed"),
    ("observers: {server: {}}", "asked about quantities"),
    ("accuracy: {max: 0.5}", "unknown key 'max' (known: min)"),
    ("accuracy: {}", "accuracy.min is required"),
    ("epsilon: {max: 8}", "epsilon.unit is required"),
    ("epsilon: {max: .inf, unit: node}", "finite"),
    ("epsilon: {max: 8, unit: client}", "unit of a guarantee of this run"),
    ("epsilon: {max: 8, unit: node, guarantee: claimed}", "go together"),
    ("epsilon: {max: 8, unit: node, delta: 1}", "epsilon.delta"),
    ("epsilon: {max: 8, unit: node, against: [servers]}", "did you mean 'server'"),
    ("accuracy: {min: 0.5}\nallow: {fail: 0}", "did you mean 'failed'"),
    (
        "accuracy: {min: 0.5}\nallow: {claimed: yes}",
        "allow.claimed must be true or false; got 'yes'; write true",
    ),
    ("{accuracy: {min: 0.1}, trainings: {min: 5.5}}", "got 5.5; write e.g. trainings: {min: 5}"),
    ("accuracy: {min: 75}", "got 75; write 0.75"),
    ("observers: {server: {features: {advantage_high: 5%}}}", "got '5%'; write 0.05"),
    (
        "accuracy: {min: yes please}",
        "accuracy.min must be a number; got 'yes please'; write e.g. accuracy: {min: 0.75}",
    ),
    ("epsilon: 8", "epsilon must be a mapping of keys to values; got 8; write e.g. epsilon: {max: 8, unit: node"),
    ("observers: [server]", "got ['server']; write e.g. observers: {server: {features: {verdict: held}}}"),
    ("allow: {failed: 1}", "must ask something"),
    ("- a list", "must be a mapping"),
    ("accuracy: {min: [", "policy.yaml"),
]


@pytest.mark.parametrize(("policy", "words"), WRONG)
def test_a_wrong_policy_is_one_line_and_exit_code_2(
    policy: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = gate(tmp_path, cells(), policy, capsys)
    assert code == ExitCode.INPUT
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error, error


def test_what_no_run_of_the_suite_can_show_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = gate(tmp_path / "bare", cells(defense=("none", {})), "epsilon: {max: 8, unit: node}", capsys)
    assert code == ExitCode.INPUT and "a guarantee needs a defense" in error
    few = cells(rows(lambda row: replace(row, clients=2)), parties=2)
    code, _, error = gate(tmp_path / "few", few, FEATURES, capsys)
    assert code == ExitCode.INPUT and "at least 5 clients x seeds" in error


def test_a_junit_file_that_cannot_be_written_names_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere" / "gate.xml")
    code, _, error = gate(tmp_path, cells(), "accuracy: {min: 0.1}", capsys, "--junit", missing)
    assert code == ExitCode.INPUT and "use another --junit" in error and "--out" not in error


def test_standard_output_is_one_json_whatever_else_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere" / "gate.xml")
    policy = "accuracy: {min: 0.1}"
    _, told, said = gate(tmp_path / "a", cells(), policy, capsys, "--json", "--github")
    assert json.loads(told)["passed"] and said.startswith("::notice title=fglaudit gate::")
    _, told, _ = gate(tmp_path / "b", cells(), policy, capsys, "--json", "--junit", missing)
    assert json.loads(told)["exit_code"] == ExitCode.INPUT
