"""The folder of one run: atomic records, resume, and ``findings.csv``.

::

    runs/NAME/suite.yaml       the suite with all defaults filled in
              run.json         the cells in order, with what a missing one would be reported as
              cells/HASH.json  one finished cell each
              transcripts/HASH/  with record: all, what attacks need
              truth/HASH/        the truth of the same run, for the scorer alone
              attacks/NAME/      what `fglaudit attack` found later
              findings.csv summary.csv report.html report.md
              .lock            held while a run writes here

Every file appears whole or not at all (written beside, flushed to disk, renamed), so a run may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from fglaudit import __version__, registry
from fglaudit.errors import FglauditError
from fglaudit.execution.rows import blank_record
from fglaudit.finding import COLUMNS, CellRecord, Finding, Status
from fglaudit.interfaces import Defense
from fglaudit.suite.cell import Cell
from fglaudit.suite.suite import Suite

NOT_RUN = "not run: the suite stopped before this cell; the same run command continues it"
_OURS = {
    "suite.yaml",
    "run.json",
    "cells",
    "transcripts",
    "truth",
    "attacks",
    "findings.csv",
    "summary.csv",
    "report.html",
    "report.md",
}


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` holds either its old content or all of the new, even if the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FglauditError(
            f"the output folder must be writable; writing {path} failed: {error.strerror or error}"
        ) from error


@dataclass
class RunStore:
    """The folder of a run while this process holds its lock.

    Attributes:
        threads: CPU threads of a cell; those of the run's first part where it is continued.
        notes: what a user should know, e.g. records that were set aside.
    """

    directory: Path
    cells: Sequence[Cell]
    threads: int = 1
    notes: list[str] = field(default_factory=list)

    def finished(self) -> dict[str, CellRecord]:
        """Return the records that need no new run, by cell hash. Cells with a failed row are run again.

        A record that cannot be read is renamed to ``*.corrupt``, noted, and its cell is run again.
        """
        found = {}
        for cell in self.cells:
            path = self.record_path(cell.hash())
            if path.exists():
                try:
                    record = read_record(path)
                except FglauditError as error:
                    aside = path.with_suffix(".json.corrupt")
                    path.replace(aside)
                    self.notes.append(f"{error}; set aside as {aside.name}, the cell runs again")
                    continue
                if not any(row.status is Status.FAILED for row in record.findings):
                    found[cell.hash()] = record
        return found

    def record_path(self, cell: str) -> Path:
        return self.directory / "cells" / f"{cell}.json"

    def recording_path(self, cell: str) -> Path:
        return self.directory / "transcripts" / cell

    def truth_path(self, cell: str) -> Path:
        return self.directory / "truth" / cell

    def write(self, record: CellRecord) -> None:
        """Store one finished cell."""
        write_atomic(
            self.record_path(record.cell), json.dumps(record.to_json(), indent=1, sort_keys=True, default=str) + "\n"
        )


@contextlib.contextmanager
def open_run(
    directory: Path, suite: Suite, cells: Sequence[Cell], data: Mapping[str, str] | None = None, threads: int = 1
) -> Iterator[RunStore]:
    """Lock ``directory`` for a run of ``suite``, creating or continuing it.

    Args:
        data: digest of the content of each data set; a run continues on the same content only.
        threads: CPU threads of a cell, if the run is new.

    Raises:
        FglauditError: if another run is using the folder, it holds something else, or it cannot be written.
    """
    if directory.exists() and not directory.is_dir():
        raise FglauditError(f"the output must be a folder; {directory} is a file; use another --out")
    foreign = (
        [p.name for p in directory.iterdir() if p.name not in _OURS and not p.name.startswith(".")]
        if directory.is_dir()
        else []
    )
    if foreign and not (directory / "run.json").exists():
        raise FglauditError(
            f"the output folder must be new, empty or a run; {directory} holds {foreign[0]}; use another --out"
        )
    try:
        for folder in ("cells", "transcripts"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise FglauditError(
            f"one run at a time may use a folder; {directory} is in use by another run; wait for it or use another"
            " --out"
        ) from error
    except OSError as error:
        raise FglauditError(f"the output folder must be writable; {directory}: {error.strerror or error}") from error
    try:
        store = RunStore(directory, cells, threads)
        _check_same(directory, suite, store, data or {})
        for left in (*directory.glob(".*.tmp"), *(directory / "cells").glob(".*.tmp")):  # from a run that was killed
            left.unlink()
        write_atomic(directory / "suite.yaml", yaml.safe_dump(suite.resolved(), sort_keys=False, width=120))
        write_atomic(
            directory / "run.json", json.dumps(_manifest(suite, store, data or {}), indent=1, default=str) + "\n"
        )
        yield store
    finally:
        lock.release()


def _manifest(suite: Suite, store: RunStore, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "version": __version__,
        "plugins": registry.loaded_files(),
        "sources": _sources(store.cells),
        "data": dict(data),
        "threads": store.threads,
        "cells": [
            {"cell": cell.hash(), "unfinished": blank_record(cell, suite.name, Status.FAILED, NOT_RUN).to_json()}
            for cell in store.cells
        ],
    }


def _sources(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the SHA-256 of the source file of every protocol, defense (each part of a stack) and attack, by "kind
    name"."""
    found: dict[str, Any] = {}
    for cell in cells:
        parts = getattr(cell.defense, "parts", ())
        used: list[tuple[str, Any]] = [
            ("protocol", cell.protocol),
            ("defense", cell.defense),
            *(("attack", a) for a in cell.attacks),
        ]
        used += [("defense", part) for part in parts if isinstance(part, Defense)]
        found |= {f"{kind} {type(plugin).name}": plugin for kind, plugin in used}
    return {name: registry.source_digest(plugin) for name, plugin in sorted(found.items())}


def _check_same(directory: Path, suite: Suite, store: RunStore, data: Mapping[str, str]) -> None:
    path = directory / "run.json"
    if not path.exists():
        return
    try:
        old = read_manifest(directory)
    except FglauditError as error:
        store.notes.append(f"{error}; written anew")
        return
    rule = f"a folder holds one run of one suite; {directory} holds"
    fix = "use another --out, or delete the folder"
    if old["version"] != __version__:
        raise FglauditError(f"{rule} a run of fglaudit {old['version']}, this is {__version__}; {fix}")
    if [entry["cell"] for entry in old["cells"]] != [cell.hash() for cell in store.cells]:
        raise FglauditError(f"{rule} another one ({old['suite']}: {_difference(directory, suite)}); {fix}")
    for file, digest in old["plugins"].items():
        if registry.loaded_files().get(file, digest) != digest:
            raise FglauditError(f"{rule} results of an earlier text of {file}; {fix}")
    for name, digest in old["data"].items():
        if data.get(name, digest) != digest:
            raise FglauditError(f"{rule} results on other content of {name}; {fix}")
    store.threads = int(old["threads"])


def _difference(directory: Path, suite: Suite) -> str:
    """Name the first key that differs between the stored suite and this one."""
    try:
        old = yaml.safe_load((directory / "suite.yaml").read_text("utf-8"))
        new = suite.resolved()
        return next(f"{key} differ" for key in new if key != "datasets" and old.get(key) != new[key])
    except (OSError, yaml.YAMLError, AttributeError, StopIteration):
        return "datasets differ"


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return ``run.json`` of a run.

    Raises:
        FglauditError: if ``directory`` is no run or the file is damaged.
    """
    path = directory / "run.json"
    if not path.is_file():
        raise FglauditError(
            f"a run folder has a run.json; there is none in {directory}; name the --out folder of a run"
        )
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return {key: data[key] for key in ("suite", "version", "plugins", "data", "threads", "cells")}
    except (ValueError, KeyError, TypeError) as error:
        raise FglauditError(
            f"run.json must be whole; {path} is damaged ({error}); run the suite again into the folder"
        ) from error


def read_record(path: Path) -> CellRecord:
    """Return one stored cell.

    Raises:
        FglauditError: if the file is truncated or not what its name says.
    """
    try:
        record = CellRecord.from_json(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FglauditError(f"a record must be whole; {path} is damaged ({type(error).__name__}: {error})") from error
    if record.cell != path.stem or not record.findings:
        raise FglauditError(
            f"a record must hold the findings of its cell; {path} holds {len(record.findings)} of {record.cell!r}"
        )
    return record


def read_records(directory: Path) -> list[CellRecord]:
    """Return all cells of a run in suite order; a cell without a readable record has ``failed`` rows that say so."""
    records = []
    for entry in read_manifest(directory)["cells"]:
        path = directory / "cells" / f"{entry['cell']}.json"
        if path.exists():
            try:
                records.append(read_record(path))
                continue
            except FglauditError as error:
                reason = f"{error}; the same run command computes it again"
        else:
            reason = NOT_RUN
        rows = [{**row, "reason": reason} for row in entry["unfinished"]["findings"]]
        records.append(CellRecord.from_json({**entry["unfinished"], "findings": rows}))
    return records


def write_findings(directory: Path) -> Path:
    """Write ``findings.csv`` from the records, in suite order; floats in full so that equal runs give equal files."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in read_records(directory):
        writer.writerows([_cell(value) for value in asdict(row).values()] for row in record.findings)
    path = directory / "findings.csv"
    write_atomic(path, text.getvalue())
    return path


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def failed_rows(records: Sequence[CellRecord]) -> list[Finding]:
    """Return every ``failed`` row."""
    return [row for record in records for row in record.findings if row.status is Status.FAILED]
