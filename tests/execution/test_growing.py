"""What goes on in the folder of a run and what does not, by a run and by --dry-run alike."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from execution_runs import run, suite
from harness_runners import RAISES, misbehave
from rich.console import Console

from fglaudit.cli import main
from fglaudit.errors import FglauditError
from fglaudit.execution.display import print_plan
from fglaudit.execution.folder.growing import check_goes_on
from fglaudit.suite.suite import Suite


def refusal(folder: Path, seeds: Sequence[int], *, secret: bool = False, sharded: bool = False) -> str:
    what = suite(seeds=list(seeds))
    cells = [replace(cell, secret=secret).hash() for cell in what.cells()]
    try:
        check_goes_on(folder, what, cells, sharded=sharded)
    except FglauditError as error:
        return str(error)
    return ""


def test_what_does_not_go_on_says_why_and_what_would(tmp_path: Path) -> None:
    run(suite(seeds=[0, 2]), tmp_path)
    assert refusal(tmp_path, [2, 0]) == refusal(tmp_path, [0, 2]) == refusal(tmp_path, [0, 1, 2]) == ""
    assert "seeds differ); a run keeps the seeds that it has, give --seeds 0,2 and more" in refusal(tmp_path, [0])
    assert "run once without --shard" in refusal(tmp_path, [0, 1, 2], sharded=True)
    for seeds in ([0, 2], [0, 1, 2]):
        assert "one of the two is --secret" in refusal(tmp_path, seeds, secret=True)
    (tmp_path / "confirmed").mkdir()
    assert "were confirmed on others" in refusal(tmp_path, [0, 1, 2]) and refusal(tmp_path, [0, 2]) == ""


def plan(what: Suite, folder: Path, *, secret: bool = False) -> dict[str, str]:
    out = io.StringIO()
    print_plan(Console(file=out, width=300), what, folder, secret=secret)
    known = {cell.hash() for cell in (replace(cell, secret=secret) for cell in what.cells())}
    lines = [line.partition(" ") for line in out.getvalue().splitlines()]
    return {head: rest.strip().partition("  ")[0] for head, _, rest in lines if head in known}


def test_a_plan_tells_failed_cells_from_finished_ones(tmp_path: Path) -> None:
    what = suite(seeds=[0, RAISES, 7])
    run(suite(seeds=[0, RAISES]), tmp_path, misbehave)
    assert list(plan(what, tmp_path).values()) == ["finished", "failed", "to do"]
    assert set(plan(what, tmp_path, secret=True).values()) == {"to do"}


def test_a_dry_run_refuses_the_folder_of_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(suite(seeds=[0]), tmp_path / "r")
    text = yaml.safe_dump({**suite(seeds=[0], record="all").resolved()})
    (tmp_path / "other.yaml").write_text(text)
    with pytest.raises(SystemExit) as done:
        main(["run", str(tmp_path / "other.yaml"), "--out", str(tmp_path / "r"), "--dry-run"])
    assert done.value.code == 2 and "record differ" in capsys.readouterr().err


def test_another_content_of_a_graphs_file_is_named_as_that(tmp_path: Path) -> None:
    """ "datasets differ" was said of a suite that nobody had touched."""

    def own(features: int) -> Suite:
        ends = np.arange(29)
        edges = np.stack([np.r_[ends, ends + 1], np.r_[ends + 1, ends]])
        np.savez(tmp_path / "own.npz", x=np.eye(30, features), y=np.arange(30) % 2, edge_index=edges)
        return suite(datasets=[{"name": "npz", "path": str(tmp_path / "own.npz"), "split": "random"}], seeds=[0])

    run(own(5), tmp_path / "run")
    changed = own(6)
    with pytest.raises(FglauditError, match="small: it was made on another content of a graph's file"):
        check_goes_on(tmp_path / "run", changed, [cell.hash() for cell in changed.cells()], sharded=False)
