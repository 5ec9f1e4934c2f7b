"""Reads a run's folder. Only ``cells/*.json`` must be there; whatever else is missing is left out or announced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord

_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OSError)
NOT_RUN = "not run: there is no record of this cell"


@dataclass(frozen=True)
class Unreadable:
    """A file that is there but cannot be used."""

    file: str
    reason: str


@dataclass(frozen=True)
class Run:
    """What a run's folder holds.

    Attributes:
        cells: records in the order of the plan (by hash where there is no plan). A planned cell without a readable
            record has the ``failed`` rows that the plan keeps for it.
        unreadable: damaged files.
        missing: hashes of planned cells without any record.
        suite_yaml: the suite as text; empty if not stored.
        facts: ``run.json``; empty if not stored.
    """

    name: str
    cells: tuple[CellRecord, ...]
    unreadable: tuple[Unreadable, ...] = ()
    missing: tuple[str, ...] = ()
    suite_yaml: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def load_run(run_dir: Path) -> Run:
    """Read the folder of a run.

    Raises:
        FglauditError: if there is no ``cells`` folder in it.
    """
    folder = run_dir / "cells"
    if not folder.is_dir():
        raise FglauditError(
            f"a report is made from a run's folder, which holds cells/*.json; {run_dir} has no 'cells' folder"
        )
    found: dict[str, CellRecord] = {}
    damaged: dict[str, Unreadable] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = CellRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
        except _DAMAGED as error:
            damaged[path.stem] = Unreadable(f"cells/{path.name}", f"{type(error).__name__}: {error}")
    unreadable = list(damaged.values())
    facts = _facts(run_dir / "run.json", unreadable)
    plan = dict(_planned(facts))
    records = {}
    for cell, unfinished in plan.items():
        if cell in found:
            records[cell] = found[cell]
        elif unfinished is not None:
            reason = f"the record is damaged: {damaged[cell].reason}" if cell in damaged else NOT_RUN
            records[cell] = _unfinished(unfinished, reason)
    records |= {cell: record for cell, record in found.items() if cell not in records}
    suites = sorted({finding.suite for record in records.values() for finding in record.findings if finding.suite})
    suite = run_dir / "suite.yaml"
    return Run(
        name=", ".join(suites) or str(facts.get("suite") or run_dir.resolve().name),
        cells=tuple(records.values()),
        unreadable=tuple(unreadable),
        missing=tuple(cell for cell in plan if cell not in found and cell not in damaged),
        suite_yaml=suite.read_text(encoding="utf-8", errors="replace") if suite.is_file() else "",
        facts=facts,
    )


def _unfinished(data: dict[str, Any], reason: str) -> CellRecord:
    return CellRecord.from_json({**data, "findings": [{**row, "reason": reason} for row in data["findings"]]})


def _facts(path: Path, unreadable: list[Unreadable]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise TypeError(f"an object was expected, got {type(facts).__name__}")
        for _ in _planned(facts):  # a plan that cannot be used is damage too
            pass
    except _DAMAGED as error:
        unreadable.append(Unreadable(path.name, f"{type(error).__name__}: {error}"))
        return {}
    return facts


def _planned(facts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield hash and stand-in record of every planned cell; ``cells`` has hashes, or ``cell`` and ``unfinished``."""
    for entry in facts.get("cells", ()):
        if isinstance(entry, str):
            yield entry, None
        else:
            yield entry["cell"], entry.get("unfinished")
