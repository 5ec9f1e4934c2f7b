"""What fails says where, and its traceback is kept in the folder of the run; what a run says, and to whom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from execution_runs import run, suite
from harness_runners import RAISES, misbehave

from fglaudit.cli import main
from fglaudit.errors import FglauditError
from fglaudit.tracebacks import collected, keep, place

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
attacks: [server-partial-sums]
seeds: [0, 1]
"""


def test_a_failed_cell_keeps_its_traceback_until_it_succeeds(tmp_path: Path) -> None:
    what = suite(seeds=[0, RAISES])
    records, _ = run(what, tmp_path, misbehave)
    assert re.fullmatch(
        r"ValueError: the loss is not finite \(harness_runners.py line \d+\)", records[1].findings[0].reason
    )
    (kept,) = (tmp_path / "errors").iterdir()
    assert kept.name == f"{records[1].cell}.txt"
    assert "Traceback" in kept.read_text() and "in misbehave" in kept.read_text()
    assert "harness_runners.py" in (tmp_path / "findings.csv").read_text()
    run(what, tmp_path)
    assert not list((tmp_path / "errors").iterdir())


def test_the_place_is_the_users_before_ours_and_before_that_of_packages(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\n\n\ndef broken():\n    json.loads('{')\n")
    scope: dict[str, object] = {}
    exec(compile((tmp_path / "mine.py").read_text(), str(tmp_path / "mine.py"), "exec"), scope)
    with pytest.raises(ValueError) as caught:
        scope["broken"]()  # type: ignore[operator]
    assert place(caught.value) == " (mine.py line 5)"
    assert place(ValueError("never raised")) == ""


def test_only_who_collects_gets_tracebacks() -> None:
    error = FglauditError("rule")
    keep(error, "nobody listens")
    with collected() as texts:
        keep(error, "attack x by server")
    assert len(texts) == 1 and texts[0].startswith("attack x by server\n") and "rule" in texts[0]


def test_quiet_verbose_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SUITE)
    command = ["run", "small.yaml", "--device", "cpu", "--jobs", "1"]

    def call(*options: str) -> str:
        with pytest.raises(SystemExit) as done:
            main([*command, *options])
        assert not done.value.code
        return capsys.readouterr().out

    assert call("-q", "--out", "a", "--log", "run.log") == ""
    lines = Path("run.log").read_text().splitlines()
    assert sum(" begins: csbm" in line for line in lines) == 2 and sum(" done: accuracy" in line for line in lines) == 2
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 ", line) for line in lines)
    said = call("-v", "--out", "b", "--log", "run.log")
    assert said.count("server server-partial-sums: ok, ") == 2
    assert len(Path("run.log").read_text().splitlines()) == 2 * len(lines)
    with pytest.raises(SystemExit) as done:
        main([*command, "--out", "c", "--log", "nowhere/run.log"])
    assert done.value.code == 2 and "a log file must be writable" in capsys.readouterr().err
