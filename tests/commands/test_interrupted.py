"""What a command says that Ctrl-C ends."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from fglaudit.cli import main

SUITE = """
name: small
datasets: [{name: csbm, csbm: {nodes: 60, edges: 120, dimensions: 20}}]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: [{name: fedgcn, hops: 1, rounds: 2}]
observers: [{parties: [server]}]
"""


@pytest.mark.parametrize(
    ("arguments", "home"),
    [
        (["report", "runs/a b"], "fglaudit.files.own.check_writable"),
        (["compare", "runs/a", "runs/b"], "fglaudit.reports.compare.compare_folders"),
        (["reproduce", "fedgcn-table2"], "fglaudit.reproduce.run.reproduce"),
        (["run", "small.yaml", "--dry-run"], "fglaudit.execution.display.print_plan"),
    ],
)
def test_an_interrupted_command_says_so_and_how_it_goes_on(
    arguments: list[str], home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but ``run`` ended without a word."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SUITE)
    Path("runs/a b").mkdir(parents=True)
    monkeypatch.setattr(home, interrupted)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 130
    again = shlex.join(["fglaudit", *arguments])
    said = f"stopped; to start again, or go on from what was kept (a run keeps finished cells): {again}"
    assert capsys.readouterr().err.splitlines()[-1] == said
