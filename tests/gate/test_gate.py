"""A gate passes what is shown and breaks on everything else; by the command itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gate_runs import (
    EXAMINED,
    FEATURES,
    GOOD,
    HELD,
    NOISE,
    Change,
    cells,
    first_failed,
    gate,
    rows,
    self_test_failed,
    server_trusted,
    with_delta,
)
from report_runs import make_cell, store

from fglaudit.cli import main
from fglaudit.execution.exit_code import ExitCode
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.guarantees import FieldState, Protection, Word
from fglaudit.quantities.base import NO_ROW_REACHES

WHOLE = """
observers:
  "client:each": {features: {advantage_high: 0.05}}
  server:        {features: {verdict: held}}
accuracy: {min: 0.6}
epsilon:  {max: 8, guarantee: verified, unit: node}
allow:    {claimed: false, unexamined: false, failed: 0}
"""


def test_a_run_that_shows_all_that_is_asked_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gate(tmp_path, cells(seeds=4), WHOLE, capsys)
    assert code == ExitCode.DONE, out
    assert out.startswith("gate passed") and "BROKEN" not in out
    assert (
        "corrected for 4 attacks" in out
        and "epsilon: wanted verified, at most 8 per node replaced (epsilon.relation); got 7.98" in out
    )
    assert "delta: wanted at most 1e-05, and below one over the number of nodes" in out
    assert "covered: wanted the guarantee is about what client:each, server sees" in out


def worse(row: Finding) -> Finding:
    """An attack that is not adapted and gets nothing."""
    return replace(row, adapted="no: Rounded") if row.attack == "row-space" else row


def test_what_leaks_breaks_it_and_the_largest_corrected_end_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = cells(defense=("none", {}))
    code, out, _ = gate(tmp_path, records, f"{FEATURES}\nallow: {{unexamined: true}}", capsys)
    assert code == ExitCode.GATE
    assert "subset-sum, corrected for 4 attacks, fedgcn, no defense on csbm-cora" in out
    found = float(out.split("got 0.")[1][:3]) / 1000
    plain = max(row.advantage_high or 0 for cell in records for row in cell.findings if row.observer == "client:each")
    assert plain - 0.05 < found < plain + 0.05


def test_an_unadapted_attack_breaks_it_only_where_it_shows_a_leak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(tmp_path / "silent", cells(rows(worse)), FEATURES, capsys)[0] == ExitCode.DONE
    loud = [replace(cell, fields=EXAMINED) for cell in cells(defense=("none", {}))]
    loud = [
        rows(lambda row: replace(row, adapted="no: Rounded") if row.attack == "subset-sum" else row)(cell)
        for cell in loud
    ]
    quiet = cells()
    mixed = []
    for silent, leaking in zip(quiet, loud, strict=True):
        pairs = zip(silent.findings, leaking.findings, strict=True)
        chosen = tuple(
            replace(b, defense=a.defense, defense_args=a.defense_args, cell=a.cell) if b.attack == "subset-sum" else a
            for a, b in pairs
        )
        keys = {key: value for key, value in leaking.clusters.items() if key.endswith("|subset-sum")}
        mixed.append(replace(silent, findings=chosen, clusters={**silent.clusters, **keys}))
    code, out, _ = gate(tmp_path / "loud", mixed, FEATURES, capsys)
    assert code == ExitCode.GATE and "subset-sum" in out


def unasked(row: Finding) -> Finding:
    return replace(row, value=None, advantage=None).ended(Status.NOT_APPLICABLE, NO_ROW_REACHES)


def other(hops: int, *changes: Change, name: str = "fedgcn") -> list[CellRecord]:
    """Cells of another setting."""
    found = [make_cell((name, {"hops": hops}, 0.8), NOISE, seed, observers=(0,)) for seed in (0, 1)]
    for change in changes:
        found = [change(cell) for cell in found]
    return [replace(cell, verdict=GOOD, fields=cell.fields or EXAMINED) for cell in found]


def test_what_leaks_is_named_first_and_so_is_all_else_that_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = other(0, rows(unasked), lambda cell: replace(cell, clusters={}))
    leaking = [replace(cell, fields=EXAMINED) for cell in cells(defense=("none", {}))]
    for i, policy in enumerate((HELD, FEATURES.replace("client:each", "server"))):
        code, out, _ = gate(tmp_path / f"{i}", [*idle, *leaking], policy, capsys)
        assert code == ExitCode.INPUT, "of the idle setting nothing can be shown, whatever leaks elsewhere"
        assert (
            "BROKEN  observers.server.features: wanted what can be asked in every setting of the run; got 1 in" in out
        )
        [line] = [line for line in out.splitlines() if "BROKEN  server features" in line]
        assert 0 < line.index("subset-sum") < line.index("not tested: no node's features") < line.index("hops=0")
        assert ("% exact (0 %) by subset-sum" in line.replace("\u202f", " ")) is (policy == HELD) and line.count(
            "not tested"
        ) == 1


def test_where_nothing_is_sent_nothing_needs_an_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idle = rows(lambda row: replace(unasked(row), bytes_up=0, bytes_down=0))
    silent = [replace(cell, fields=(), clusters={}) for cell in other(1, idle, name="local-gcn")]
    for i, policy in enumerate((HELD, FEATURES.replace("client:each", "server"))):
        code, out, _ = gate(tmp_path / f"{i}", silent, policy, capsys)
        assert code == ExitCode.DONE, out
    pooled = [rows(lambda row: replace(row, protocol="gcn"))(cell) for cell in silent]
    code, _, error = gate(tmp_path / "pooled", pooled, HELD, capsys)
    assert code == ExitCode.INPUT and "got 1 in which" in error, "all data in one place is no protection"


def test_a_setting_in_which_nobody_can_be_asked_about_is_an_error_of_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = other(0, rows(unasked), lambda cell: replace(cell, clusters={}))
    code, _, error = gate(tmp_path, idle, HELD, capsys)
    assert code == ExitCode.INPUT and "got 1 in which no node's row can be asked" in error and "fedgcn" in error


def test_missing_and_damaged_cells_break_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = cells()
    code, out, _ = gate(tmp_path / "missing", plan[:1], "accuracy: {min: 0.1}", capsys, plan=plan)
    assert code == ExitCode.GATE and "rows: wanted all 16 planned rows; got 8 missing or damaged" in out
    fewer = [plan[0], replace(plan[1], findings=plan[1].findings[:-1])]
    code, out, _ = gate(tmp_path / "fewer", fewer, "accuracy: {min: 0.1}", capsys, plan=plan)
    assert code == ExitCode.GATE and "got 1 missing or damaged" in out
    store(tmp_path / "damaged", plan, plan=plan)
    path = tmp_path / "damaged" / "cells" / f"{plan[0].cell}.json"
    path.write_text(path.read_text().replace("0.8", "0.9", 1))
    with pytest.raises(SystemExit) as done:
        main(["gate", str(tmp_path / "damaged"), str(tmp_path / "missing" / "policy.yaml")])
    assert done.value.code == ExitCode.GATE and "got 8 missing or damaged" in capsys.readouterr().out


def test_a_party_that_breaks_the_rules_is_named_unless_the_policy_allows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    active = cells(rows(lambda row: replace(row, server="crafted-weights(rounds=8)")))
    code, out, _ = gate(tmp_path / "no", active, FEATURES, capsys)
    assert code == ExitCode.GATE and "crafted-weights(rounds=8)" in out and "allow.servers" in out
    allowed = f"{FEATURES}\nallow: {{servers: [crafted-weights]}}"
    code, out, _ = gate(tmp_path / "yes", active, allowed, capsys)
    assert "servers" in out and code == ExitCode.DONE


def test_a_refuted_guarantee_is_graver_than_a_broken_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = cells(lambda cell: replace(cell, verdict=replace(GOOD, word=Word.REFUTED)))
    code, out, _ = gate(tmp_path, records, "accuracy: {min: 0.99}", capsys)
    assert code == ExitCode.REFUTED and "BROKEN  accuracy" in out and "BROKEN  refuted" in out


def test_sealed_messages_pass_and_too_few_failed_rows_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = rows(
        lambda r: (
            replace(r, status=Status.NOT_APPLICABLE, reason="ciphertexts only", value=None, advantage=None)
            if r.observer == "server"
            else r
        )
    )
    shut = FieldState("server", "NeighborSums", "sums", Protection.SEALED, "verified: bfv of SEAL", Word.VERIFIED)
    sealed = (shut, replace(EXAMINED[0], observer="client"))
    records = cells(idle, lambda cell: replace(cell, fields=sealed, clusters={}))
    code, out, _ = gate(tmp_path / "sealed", records, HELD, capsys)
    assert code == ExitCode.DONE, out
    beside = [replace(shut, field="presence", state=Protection.STILL, reason="20 records replaced")]
    beside += [FieldState("", "report", "accuracy", Protection.NOTHING, "nothing is stated about reported accuracies")]
    replayed = [replace(record, fields=(*sealed, *beside)) for record in records]
    assert gate(tmp_path / "replayed", replayed, HELD, capsys)[0] == ExitCode.DONE
    word = replace(shut, reason="claimed: sealed by the author's own code", seal=Word.CLAIMED)
    claimed = [replace(record, fields=(word, *sealed[1:])) for record in records]
    code, out, _ = gate(tmp_path / "claimed", claimed, HELD, capsys)
    assert code == ExitCode.GATE and "sealed by the author's own code" in out
    open_ = [replace(record, fields=(replace(sealed[0], state=Protection.COVERED),)) for record in records]
    code, out, _ = gate(tmp_path / "open", open_, HELD, capsys)
    assert code == ExitCode.GATE and "not tested" in out
    policy = "accuracy: {min: 0.1}\nallow: {failed: 2}"
    assert gate(tmp_path / "allowed", cells(first_failed), policy, capsys)[0] == ExitCode.DONE
    policy = "accuracy: {min: 0.1}\nallow: {broken: 2}"
    assert gate(tmp_path / "broken", cells(self_test_failed), policy, capsys)[0] == ExitCode.DONE


def test_a_guarantee_holds_against_those_whom_the_policy_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against clients alone where the policy says so; its delta as large as the policy says."""
    named = 'epsilon: {max: 8, unit: node, against: ["client:each"]}'
    assert gate(tmp_path / "against", cells(server_trusted), named, capsys)[0] == ExitCode.DONE
    asked = f"{FEATURES}\nepsilon: {{max: 8, unit: node}}"
    assert gate(tmp_path / "asked", cells(server_trusted), asked, capsys)[0] == ExitCode.DONE
    large = "epsilon: {max: 8, unit: node, delta: 1.0e-3}"
    assert gate(tmp_path / "large", cells(with_delta(1e-3)), large, capsys)[0] == ExitCode.DONE
    assert gate(tmp_path / "pure", cells(with_delta(0.0)), large, capsys)[0] == ExitCode.DONE


def test_json_junit_and_annotations_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = f"{FEATURES}\naccuracy: {{min: 0.99}}"
    code, out, _ = gate(tmp_path, cells(), policy, capsys, "--json", "--junit", str(tmp_path / "gate.xml"))
    said = json.loads(out)
    assert said["exit_code"] == code == ExitCode.GATE and said["passed"] is False
    broken = [check["name"] for check in said["checks"] if not check["passed"]]
    assert broken == ["accuracy"]
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert suite.get("tests") == str(len(said["checks"])) and suite.get("failures") == "1"
    assert [case.get("name") for case in suite if len(case)] == broken
    (tmp_path / "again").mkdir()
    _, out, _ = gate(tmp_path / "again", cells(), policy, capsys, "--github")
    lines = [line for line in out.splitlines() if line.startswith("::")]
    assert len(lines) == 1 and lines[0].startswith("::error title=fglaudit gate%3A accuracy::wanted at least 0.99")
