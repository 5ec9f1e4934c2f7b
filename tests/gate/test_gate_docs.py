"""The documented policy is one, and the five documented lines work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from fglaudit.cli import main
from fglaudit.execution.exit_code import ExitCode
from fglaudit.gate.policy import read_policy

DOCS = (Path(__file__).parents[2] / "docs" / "gate.md").read_text("utf-8")
CI, POLICY = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
SUITE = """
name: audit
datasets: [{name: csbm, csbm: {nodes: 120, edges: 240, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 6, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}, {parties: ["client:each"]}]
attacks: [subset-sum, server-partial-sums]
"""


def test_the_documented_policy_has_every_key(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    policy = read_policy(tmp_path / "policy.yaml")
    assert set(policy.observers) == {"client:each", "server"}
    assert policy.observers["server"]["features"].verdict == "held"
    assert policy.accuracy is not None and policy.accuracy.min == 0.75
    assert policy.epsilon is not None and (policy.epsilon.max, policy.epsilon.unit) == (8, "node")
    assert policy.epsilon.delta == 1e-5 and policy.epsilon.against == ["client:each"]
    assert policy.allow.model_dump() == {
        "claimed": False, "unexamined": False, "failed": 0, "broken": 0, "servers": []
    }  # fmt: skip


def test_the_documented_lines_run_and_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(CI.strip().splitlines()) == 5
    commands = [shlex.split(step["run"]) for step in yaml.safe_load(CI) if "run" in step]
    ours = [command[1:] for command in commands if command[0] == "fglaudit"]
    monkeypatch.chdir(tmp_path)
    Path("audit.yaml").write_text(SUITE)
    Path("policy.yaml").write_text(
        "observers: {server: {features: {advantage_high: 0.05}}}\nallow: {unexamined: true}\n"
    )
    codes = []
    for arguments in ours:
        with pytest.raises(SystemExit) as done:
            main([*arguments, *(["--device", "cpu", "--jobs", "1"] if arguments[0] == "run" else [])])
        codes.append(done.value.code)
    assert codes == [0, ExitCode.GATE], "an undefended server reads sums, and the gate says so"
    said = Path("gate.xml").read_text()
    assert "server features advantage_high" in said and "server-partial-sums" in said
