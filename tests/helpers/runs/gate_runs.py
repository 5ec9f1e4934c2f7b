"""A run with a guarantee, in a folder, and the gate that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_cell, store

from fglaudit.cli import main
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.guarantees import FieldState, Protection, Verdict, Word

FEDGCN: tuple[str, dict[str, Any], float] = ("fedgcn", {"hops": 1, "rounds": 100}, 0.812)
NOISE: tuple[str, dict[str, Any]] = ("gaussian", {"epsilon": 8.0, "delta": 1e-5})
EXAMINED = (FieldState("", "NeighborSums", "sums", Protection.ATTACKED, "subset-sum read it"),)
GOOD = Verdict(
    Word.VERIFIED,
    "by facts and counted releases",
    epsilon=7.98,
    claimed=8.0,
    delta=1e-5,
    unit="node",
    relation="replaced",
)
Change = Callable[[CellRecord], CellRecord]
FEATURES = 'observers: {"client:each": {features: {advantage_high: 0.05}}}'
HELD = "observers: {server: {features: {verdict: held}}}"


def cells(
    *changes: Change, defense: tuple[str, dict[str, Any]] = NOISE, parties: int = 10, seeds: int = 2
) -> list[CellRecord]:
    found = []
    for seed in range(seeds):
        cell = make_cell(FEDGCN, defense, seed, observers=(0, 1), parties=parties)
        cell = rows(promised)(replace(cell, verdict=GOOD, fields=EXAMINED))
        for change in changes:
            cell = change(cell)
        found.append(cell)
    return found


def promised(row: Finding) -> Finding:
    """What a run says of a guarantee to every observer."""
    return replace(row, guarantee="none" if row.defense == "none" else "verified")


def rows(change: Callable[[Finding], Finding]) -> Change:
    return lambda cell: replace(cell, findings=tuple(map(change, cell.findings)))


def gate(
    folder: Path,
    records: Sequence[CellRecord],
    policy: str,
    capsys: pytest.CaptureFixture[str],
    *options: str,
    plan: Sequence[CellRecord] = (),
) -> tuple[int, str, str]:
    store(folder / "run", records, plan=plan or records)
    (folder / "policy.yaml").write_text(policy)
    try:
        main(["gate", str(folder / "run"), str(folder / "policy.yaml"), *options])
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def self_test_failed(cell: CellRecord) -> CellRecord:
    broken = replace(cell.findings[0], status=Status.BROKEN_ATTACK, reason="self-test: did not find a planted row")
    return replace(cell, findings=(broken, *cell.findings[1:]))


def server_trusted(cell: CellRecord) -> CellRecord:
    """A guarantee against clients alone, as a run says it: rows of the server name none."""
    return rows(lambda row: replace(row, guarantee="none") if row.observer == "server" else row)(
        replace(cell, verdict=replace(GOOD, not_covered="Not covered: labels, the server, which is trusted"))
    )


def with_delta(delta: float | None) -> Change:
    return lambda cell: replace(cell, verdict=replace(GOOD, delta=delta))


def first_failed(cell: CellRecord) -> CellRecord:
    lost = replace(cell.findings[0], status=Status.FAILED, reason="lost", value=None, advantage=None, accuracy=None)
    return replace(cell, findings=(lost, *cell.findings[1:]))
