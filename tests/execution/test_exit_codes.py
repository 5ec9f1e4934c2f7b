"""What commands exit with, by the commands themselves: done, failed cells, bad input, a refuted guarantee."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import make_cell, store

from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.cli import main
from fglaudit.execution.exit_code import ExitCode, combined, refuted, troubles
from fglaudit.execution.folder.stored_record import record_text
from fglaudit.execution.folder.stored_run import read_stored
from fglaudit.execution.saved import told_by_run
from fglaudit.finding import CellRecord, Status
from fglaudit.guarantees import Verdict, Word
from fglaudit.observers import ObserverSpec
from fglaudit.reports.alarms import refuted as reports_refuted
from fglaudit.reports.epsilons import guarantee_word
from fglaudit.reports.records import Run
from fglaudit.reports.summary import summarize
from fglaudit.suite.cell import describe

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
attacks: [server-partial-sums]
record: all
"""
BROKEN = Verdict(Word.REFUTED, "noise of a third of the stated scale", epsilon=8.0)
GRAPH = ("gaussian", {"epsilon": 8.0})


def call(*arguments: str) -> int:
    try:
        main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def rewritten(folder: Path, verdict: Verdict) -> None:
    """Give the stored cells of a run another verdict."""
    for path in (folder / "cells").glob("*.json"):
        record, made = read_stored(path)
        path.write_text(record_text(replace(record, verdict=verdict), made))


def test_run_attack_and_report_end_with_3_where_a_guarantee_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SUITE)
    command = ("run", "small.yaml", "--out", "run", "--device", "cpu", "--jobs", "1")
    attack = ("attack", "run", "--observer", "server", "--attack", "server-partial-sums", "--device", "cpu")
    assert call(*command) == ExitCode.DONE
    capsys.readouterr()
    assert call(*attack, "--name", "first") == ExitCode.DONE
    said = capsys.readouterr().err  # a folder's hash tells nobody which training it is
    assert re.search(r"attacking 1 of \d+: csbm\S* .* fedgcn\S* .*none.* seed 0\n", said), said
    rewritten(Path("run"), BROKEN)
    capsys.readouterr()
    for arguments in (command, (*attack, "--name", "second"), ("report", "run")):
        assert call(*arguments) == ExitCode.REFUTED, arguments
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == "error: the guarantee of none on fedgcn is refuted: noise of a third of the stated scale"
    assert call(*attack, "--name", "second") == ExitCode.INPUT  # the name is taken
    for path in Path("run/cells").glob("*.json"):
        path.write_text("{")
    assert call(*attack, "--name", "third") == ExitCode.FAILED  # whether anything was refuted is not known any more
    assert "what the run found out about its guarantee is lost" in capsys.readouterr().err


def damaged(record: CellRecord) -> CellRecord:
    rows = tuple(replace(row, status=Status.FAILED, reason="ValueError: lost") for row in record.findings)
    return replace(record, findings=rows)


def test_a_report_of_failed_cells_is_done_and_one_of_a_refuted_guarantee_is_not(tmp_path: Path) -> None:
    cell = make_cell(("fedgcn", {"hops": 1}, 0.8), GRAPH, 0)
    other = make_cell(("fedgcn", {"hops": 1}, 0.8), GRAPH, 1)
    store(tmp_path / "failed", [damaged(cell), other], plan=[cell, other])
    assert call("report", str(tmp_path / "failed")) == ExitCode.DONE
    both = [damaged(cell), replace(other, verdict=BROKEN)]
    store(tmp_path / "both", both, plan=[cell, other])
    assert call("report", str(tmp_path / "both")) == ExitCode.REFUTED
    found = troubles(both, "try again")
    assert [trouble.code for trouble in found] == [ExitCode.REFUTED, ExitCode.FAILED]
    assert found[1].text == "1 of 2 cells has failed rows; try again"


def test_a_column_that_says_refuted_is_enough_and_a_claim_is_not() -> None:
    cell = make_cell(("fedgcn", {"hops": 1}, 0.8), GRAPH, 0)
    assert refuted([cell, replace(cell, verdict=replace(BROKEN, word=Word.CLAIMED))]) == []
    first = replace(cell.findings[0], guarantee="refuted")
    row = replace(cell, findings=(first, *cell.findings[1:]))
    assert refuted([row, row]) == ["the guarantee of gaussian(epsilon=8) on fedgcn is refuted"]


def test_an_epsilon_that_replays_exceed_is_refuted_for_every_command() -> None:
    """One row is enough, and one definition: the report's alarm, the exit code and the gate say the same."""
    cell = make_cell(("fedgcn", {"hops": 1}, 0.8), GRAPH, 0)
    last = replace(cell.findings[-1], epsilon_accounted=8.0, epsilon_empirical=11.0)
    cell = replace(cell, verdict=Verdict(Word.VERIFIED, epsilon=8.0), findings=(*cell.findings[:-1], last))
    (line,) = refuted([cell])
    assert line.endswith("is refuted: replays show an epsilon of at least 11, above the 8 that is accounted")
    assert {t.code for t in troubles([cell])} == {ExitCode.REFUTED}
    [setting] = summarize(Run("run", (cell,), planned=True))
    assert reports_refuted(setting) and guarantee_word(setting) == Word.REFUTED
    fine = replace(cell, findings=(*cell.findings[:-1], replace(last, epsilon_empirical=7.9)))
    assert refuted([fine]) == [] and fine.refuted is None


def test_bad_input_is_graver_than_a_refuted_guarantee_than_a_broken_gate_than_failed_cells() -> None:
    order = [ExitCode.INPUT, ExitCode.REFUTED, ExitCode.GATE, ExitCode.FAILED, ExitCode.DONE]
    assert [int(code) for code in order] == [2, 3, 4, 1, 0]
    for (i, first), (j, second) in itertools.product(enumerate(order), repeat=2):
        assert combined([first, second]) is order[min(i, j)]
    assert combined([]) is ExitCode.DONE


def test_an_attack_on_a_saved_run_has_the_runs_answer_where_it_asks_the_same() -> None:
    server, attack = ObserverSpec(("server",)), MaximumAPosteriori()
    cell = make_cell(("fedgcn", {"hops": 1}, 0.8), GRAPH, 0)
    row = replace(cell.findings[0], observer="server", observer_knowledge="", attack="maximum-a-posteriori")
    described = json.loads(json.dumps({"observers": [describe(server)], "attacks": [describe(attack)]}))
    record = replace(cell, findings=(replace(row, succeeds_weakened="yes"),), description=described)
    assert told_by_run(record, [server], [attack]) == {("server", "", "maximum-a-posteriori"): "yes"}
    assert told_by_run(record, [replace(server, topology=True)], [attack]) == {}
    assert told_by_run(record, [server], [replace(attack, rounds=3)]) == {}
    assert told_by_run(None, [server], [attack]) == {}


def test_a_saved_runs_plugin_files_need_trust_and_must_be_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", "defense", "own-noise") == ExitCode.DONE
    Path("small.yaml").write_text(f'{SUITE}defenses: [{{name: "own_noise.py:OwnNoise"}}]\nempirical: false\n')
    assert call("run", "small.yaml", "--out", "run", "--device", "cpu", "--jobs", "1") == ExitCode.DONE
    attack = ("attack", "run", "--observer", "server", "--attack", "server-partial-sums", "--device", "cpu")
    capsys.readouterr()
    assert call(*attack) == ExitCode.INPUT
    assert "run only if they are trusted" in capsys.readouterr().err
    nobody = ["client:9" if each == "server" else each for each in attack]
    assert call(*nobody, "--trust-plugins") == ExitCode.INPUT
    said = capsys.readouterr().err
    assert "client:0 ... client:2; got 'client:9'" in said and "attacking" not in said
    assert call(*attack, "--trust-plugins") == ExitCode.DONE
    written = Path("own_noise.py").read_text()
    Path("own_noise.py").write_text(f"{written}# another\n")
    assert call(*attack, "--trust-plugins", "--name", "again") == ExitCode.INPUT
    Path("own_noise.py").write_text(written)  # this process looks at the files that it imported before every run
    assert "stays the same" in capsys.readouterr().err
