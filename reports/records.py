"""Reads a run's folder. Only ``cells/*.json`` must be there; whatever else is missing is left out or announced."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError
from fglaudit.execution.folder.run_folder import CONFIRMED, READ, run_folder
from fglaudit.execution.folder.stored_record import NAME
from fglaudit.execution.folder.stored_run import Manifest, Stored, read_cells, read_manifest, read_stored
from fglaudit.files.own import read_own
from fglaudit.files.user import is_folder
from fglaudit.finding import CellRecord

__all__ = ["Run", "Unreadable", "load_run"]


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
        planned: whether there is a usable ``run.json``.
        facts: what all cells have in common: version, threads, data, plugins; empty if not stored.
        confirmed: runs of settings that this run chose, on fresh seeds.
    """

    name: str
    cells: tuple[CellRecord, ...]
    unreadable: tuple[Unreadable, ...] = ()
    missing: tuple[str, ...] = ()
    suite_yaml: str = ""
    planned: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    confirmed: tuple[Run, ...] = ()


def load_run(run_dir: Path) -> Run:
    """Read the folder of a run.

    Raises:
        FglauditError: if there is no ``cells`` folder in it.
    """
    folder = run_folder(run_dir, READ) / "cells"
    if not is_folder(folder):
        raise FglauditError(
            f"a report is made from a run's folder, which holds cells/*.json; {run_dir} has no 'cells' folder; name"
            " the --out folder of a run"
        )
    unreadable: list[Unreadable] = []
    manifest = _manifest(run_dir, unreadable)
    stored = _unplanned(folder) if manifest is None else read_cells(run_dir, manifest)
    damaged = [Unreadable(f"cells/{cell}.json", reason) for cell, reason in stored.damaged.items()]
    confirmed = _confirmed(run_dir / CONFIRMED, unreadable)
    suites = sorted({finding.suite for record in stored.records for finding in record.findings if finding.suite})
    return Run(
        name=", ".join(suites) or (manifest.suite if manifest else run_dir.resolve().name),
        cells=stored.records,
        unreadable=(*damaged, *unreadable),
        missing=stored.missing,
        suite_yaml=_text(run_dir / "suite.yaml"),
        planned=manifest is not None,
        facts={**manifest.made.to_json(), "sources": dict(manifest.sources)} if manifest else {},
        confirmed=confirmed,
    )


def _confirmed(folder: Path, unreadable: list[Unreadable]) -> tuple[Run, ...]:
    """Read the runs in ``folder``; one that cannot be read is announced."""
    runs = []
    for path in sorted(folder.iterdir()) if is_folder(folder) else ():
        try:
            run = load_run(path)
        except FglauditError as error:
            unreadable.append(Unreadable(f"{CONFIRMED}/{path.name}", str(error)))
            continue
        runs.append(run)
        unreadable += [Unreadable(f"{CONFIRMED}/{path.name}/{bad.file}", bad.reason) for bad in run.unreadable]
    return tuple(runs)


def _unplanned(folder: Path) -> Stored:
    """Read all records that there are; files that no run can have written are somebody else's."""
    records, damaged = [], {}
    for path in sorted(folder.glob("*.json")):
        if NAME.fullmatch(path.stem) is None:
            continue
        try:
            records.append(read_stored(path)[0])
        except FglauditError as error:
            damaged[path.stem] = str(error)
    return Stored(tuple(records), damaged, ())


def _manifest(run_dir: Path, unreadable: list[Unreadable]) -> Manifest | None:
    if not os.path.lexists(run_dir / "run.json"):
        return None
    try:
        return read_manifest(run_dir)
    except FglauditError as error:
        unreadable.append(Unreadable("run.json", str(error)))
        return None


def _text(path: Path) -> str:
    try:
        return read_own(path, "", "").decode("utf-8", "replace")
    except FglauditError:
        return ""
