"""``fglaudit run --confirm``: what was chosen runs again, unchanged, on seeds that took no part in the choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fglaudit.cli import main
from fglaudit.commands.confirming import fresh_seeds
from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.reports.records import load_run

SUITE = """
name: choose
datasets: [{name: csbm, csbm: {nodes: 200, edges: 400, classes: 3, dimensions: 40, ones_per_row: 5}}]
partitions: [{scheme: dirichlet, clients: 10, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
defenses: [none, {name: gaussian, epsilon: 0.1, clip: 4.5}]
observers: [{parties: [server], topology: true, auxiliary: 0.1}]
attacks: [maximum-a-posteriori]
empirical: false
seeds: [3, 7]
"""


def test_fresh_seeds_follow_all_that_were_used() -> None:
    assert fresh_seeds([3, 7], 3) == (8, 9, 10)


def test_the_chosen_setting_runs_again_and_the_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = tmp_path / "suite.yaml", tmp_path / "run"
    suite.write_text(SUITE, "utf-8")
    command = ["run", str(suite), "--out", str(out), "--jobs", "1", "--confirm", "2"]
    main_ended(command)
    first = capsys.readouterr().out
    assert "confirming fedgcn, gaussian" in first and "on fresh seeds" in first, first
    (folder,) = (out / CONFIRMED).iterdir()
    again = load_run(folder)
    assert {f.defense for record in again.cells for f in record.findings} == {"gaussian"}
    assert {f.seed for record in again.cells for f in record.findings} == {8, 9}
    assert "confirmed on fresh seeds 8, 9" in (out / "report.md").read_text("utf-8")
    assert {f.seed for record in load_run(out).cells for f in record.findings} == {3, 7}, "the run itself is untouched"
    main_ended(command)
    assert "2 of 2 cells are finished already" in capsys.readouterr().out.replace("\n", " ")


def test_nothing_chosen_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.replace("[none, {name: gaussian, epsilon: 0.1, clip: 4.5}]", "[none]"), "utf-8")
    main_ended(["run", str(suite), "--out", str(tmp_path / "run"), "--jobs", "1", "--confirm", "1"])
    assert "nothing was chosen" in capsys.readouterr().out
    assert not (tmp_path / "run" / CONFIRMED).exists()


def test_shards_cannot_confirm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE, "utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(suite), "--out", str(tmp_path / "run"), "--shard", "1/2", "--confirm", "1"])
    assert ended.value.code == 2 and "without --shard" in capsys.readouterr().err


def main_ended(command: list[str]) -> None:
    try:
        main(command)
    except SystemExit as ended:
        assert not ended.code
