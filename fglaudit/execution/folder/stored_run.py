"""What lies in the folder of a run: ``run.json`` and the records of its cells, read and checked."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fglaudit.errors import FglauditError
from fglaudit.execution.folder.plan import Planned, plan_from_json, plan_to_json
from fglaudit.execution.folder.run_folder import READ, run_folder
from fglaudit.execution.folder.stored_record import Made, damaged, parse_record, unusable
from fglaudit.files.own import DamagedError, read_own, read_stamped, stamped
from fglaudit.finding import NOT_RUN, CellRecord, Finding, Status

OTHER = ValueError("it was made with other data, threads or versions than this run")
_AGAIN = "run the suite again into the folder"


@dataclass(frozen=True)
class Manifest:
    """``run.json``.

    Attributes:
        suite: its name.
        made: what all cells of the run have in common.
        plan: its cells in order.
        sources: SHA-256 of the source files of its protocols, defenses and attacks, by kind and name.
    """

    suite: str
    made: Made
    plan: tuple[Planned, ...]
    sources: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        made = {"suite": self.suite, **self.made.to_json(), "sources": dict(self.sources)}
        return stamped({**made, **plan_to_json(self.plan)}, "run.json")


def read_manifest(directory: Path) -> Manifest:
    """Return ``run.json`` of a run.

    Raises:
        FglauditError: if ``directory`` is no run or the file is damaged.
    """
    path = run_folder(directory, READ) / "run.json"
    if not os.path.lexists(path):
        raise FglauditError(
            f"a run folder has a run.json; there is none in {directory}; name the --out folder of a run"
        )
    data = read_stamped(path, "run.json", _AGAIN)
    try:
        made = Made.from_json({key: data.get(key) for key in ("version", "threads", "data", "plugins")})
        sources = data.get("sources", {})
        if not (isinstance(sources, dict) and all(isinstance(value, str) for value in sources.values())):
            raise ValueError("sources are SHA-256 sums by name")
        return Manifest(str(data.get("suite", "")), made, plan_from_json(data), sources)
    except ValueError as error:
        raise DamagedError(f"run.json must be whole; {path} is damaged ({error}); {_AGAIN}") from error


@contextlib.contextmanager
def no_cycles_sought() -> Iterator[None]:
    """Keep Python from looking for reference cycles: thousands of records have none, and looking takes a quarter of the
    time of reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_stored(path: Path) -> tuple[CellRecord, Made]:
    """Return one stored cell and what it was made with.

    Raises:
        FglauditError: if the file is damaged or not what its name says.
    """
    text = read_own(path, "a record", "the same run command computes it again")
    try:
        return parse_record(text, path.stem)
    except ValueError as error:
        raise damaged(path, error) from error


def read_record(path: Path) -> CellRecord:
    """Return one stored cell; raises as :func:`read_stored`."""
    return read_stored(path)[0]


@dataclass(frozen=True)
class Stored:
    """What a run has of its planned cells.

    Attributes:
        records: all cells in suite order; one without a usable record has ``failed`` rows that say so.
        damaged: why a record that is there cannot be used, by cell.
        missing: cells without any record.
    """

    records: tuple[CellRecord, ...]
    damaged: Mapping[str, str]
    missing: tuple[str, ...]


def read_cells(directory: Path, manifest: Manifest) -> Stored:
    """Read the records of a run."""
    with no_cycles_sought():
        return _read_cells(directory, manifest)


def _read_cells(directory: Path, manifest: Manifest) -> Stored:
    records, damage, missing = [], dict[str, str](), []
    for planned in manifest.plan:
        path = directory / "cells" / f"{planned.cell}.json"
        if not os.path.lexists(path):
            records.append(planned.record(manifest.suite, NOT_RUN))
            missing.append(planned.cell)
            continue
        try:
            record, made = read_stored(path)
            if made != manifest.made:
                raise damaged(path, OTHER) from OTHER
            records.append(record)
        except FglauditError as error:
            damage[planned.cell] = unusable(error)
            records.append(planned.record(manifest.suite, str(error)))
    return Stored(tuple(records), damage, tuple(missing))


def read_records(directory: Path) -> list[CellRecord]:
    """Return all cells of a run in suite order; a cell without a usable record has ``failed`` rows that say so."""
    return list(read_cells(directory, read_manifest(directory)).records)


def failed_rows(records: Sequence[CellRecord]) -> list[Finding]:
    """Return every ``failed`` row."""
    return [row for record in records for row in record.findings if row.status is Status.FAILED]
