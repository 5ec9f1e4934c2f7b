"""The tables of a run beside its report: ``findings.csv``, ``coverage.csv`` and ``guarantees.csv``."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from fglaudit.execution.folder.stored_run import read_records
from fglaudit.execution.whole_protocol import whole_protocol
from fglaudit.files.own import write_atomic
from fglaudit.finding import COLUMNS, CellRecord, Finding, Status
from fglaudit.guarantees import FieldState


def write_findings(directory: Path, records: Sequence[CellRecord] | None = None) -> Path:
    """Write ``findings.csv``, of what did not apply ``coverage.csv``, and of every field that is sent
    ``guarantees.csv``; the first is returned.

    Every row of every record is in one of the first two, in suite order; floats in full so that equal runs give equal
    files.
    """
    cells = read_records(directory) if records is None else records
    every = [row for record in cells for row in record.findings]
    write_atomic(directory / "guarantees.csv", _states(cells))
    idle = [row for row in every if row.status is Status.NOT_APPLICABLE]
    write_atomic(directory / "coverage.csv", _table(idle))
    path = directory / FINDINGS
    write_atomic(path, _table([row for row in every if row.status is not Status.NOT_APPLICABLE]))
    return path


class GrowingFindings:
    """``findings.csv`` while a run goes on: the rows of the cells that are finished, in the order in which they were.

    The file is whole at any moment. It is written again at most once a second, and seldom enough to take a twentieth
    of the time; :func:`write_findings` has the last word.
    """

    def __init__(self, directory: Path, finished: Iterable[CellRecord]) -> None:
        """Begin with the records of cells that were ``finished`` before; nothing is written yet."""
        self._path, self._text, self._new = directory / FINDINGS, "", list(finished)
        self._again = time.monotonic()

    def add(self, record: CellRecord) -> None:
        """Take the rows of a cell that has just been finished."""
        self._new.append(record)
        self.write()

    def write(self) -> None:
        """Write what is new, if it is time."""
        begun = time.monotonic()
        if not self._new or begun < self._again:
            return
        rows = [row for record in self._new for row in record.findings if row.status is not Status.NOT_APPLICABLE]
        self._text += _table(rows, heading=not self._text)
        self._new.clear()
        write_atomic(self._path, self._text)
        now = time.monotonic()
        self._again = now + max(LEAST_SECONDS, 20 * (now - begun))


FINDINGS = "findings.csv"
LEAST_SECONDS = 1.0
"""Between two versions of a growing table."""


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return ``rows`` of values as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


_IN_ORDER = attrgetter(*COLUMNS)


def _table(rows: Iterable[Finding], *, heading: bool = True) -> str:
    return csv_text([*([COLUMNS] if heading else []), *map(_IN_ORDER, rows)])


def _states(records: Sequence[CellRecord]) -> str:
    """Return what protects every field that is sent, by cell, and at the end what that comes to for each observer."""
    columns = FieldState.columns()
    rows = [
        [record.cell, *(getattr(state, column) for column in columns)]
        for record in records
        for state in (*record.fields, *whole_protocol(record))
    ]
    return csv_text([["cell", *columns], *rows])


def csv_cell(value: Any) -> str:
    """Return ``value`` for a CSV file: floats in full, nothing for what does not apply.

    Text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break) gets an apostrophe
    in front, as spreadsheets themselves mark text.
    """
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value and value[0] in _FORMULA else str(value)
    return repr(value) if isinstance(value, float) else str(value)


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
