"""One cause that fails many cells is said once, with how many cells it fails."""

from __future__ import annotations

import io
from pathlib import Path

from execution_runs import run, suite
from harness_runners import RAISES, misbehave
from rich.console import Console

from fglaudit.execution.failures import failures_table
from fglaudit.execution.folder.stored_run import failed_rows
from fglaudit.finding import CellRecord
from fglaudit.suite.cell import Cell


def always(cell: Cell, **rest: object) -> CellRecord:
    raise ValueError("no such key")


def printed(records: list[CellRecord]) -> str:
    out = io.StringIO()
    Console(file=out, width=300).print(failures_table(failed_rows(records)))
    return out.getvalue()


def test_a_cause_of_every_cell_is_one_line_with_their_number(tmp_path: Path) -> None:
    records, said = run(suite(seeds=list(range(5))), tmp_path, always)
    assert said.count("no such key") == 1 and said.count("failed (") == 5
    table = printed(records)
    assert table.count("no such key") == 1 and "and 2 more" in table
    assert all(record.cell in table for record in records[:3]) and records[3].cell not in table


def test_causes_that_differ_are_all_said(tmp_path: Path) -> None:
    records, said = run(suite(seeds=[0, RAISES]), tmp_path, misbehave)
    assert said.count("the loss is not finite") == 1
    table = printed(records)
    assert table.count("the loss is not finite") == 1 and records[1].cell in table and "more" not in table


def test_two_failed_graphs_of_one_name_are_named_apart(tmp_path: Path) -> None:
    graphs = [{"name": "csbm", "csbm": {"nodes": nodes, "edges": 120}} for nodes in (60, 90)]
    records, _ = run(suite(datasets=graphs), tmp_path, always)
    table = printed(records)
    assert "csbm nodes=60" in table and "csbm nodes=90" in table
