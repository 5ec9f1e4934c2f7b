"""The tables of a run beside its report: ``findings.csv``, ``coverage.csv`` and ``guarantees.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from fglaudit.execution.stored_record import csv_cell
from fglaudit.execution.stored_run import read_records
from fglaudit.finding import COLUMNS, CellRecord, Finding, Status
from fglaudit.guarantees import FieldState
from fglaudit.own_files import write_atomic


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
    path = directory / "findings.csv"
    write_atomic(path, _table([row for row in every if row.status is not Status.NOT_APPLICABLE]))
    return path


def _table(rows: Sequence[Finding]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([csv_cell(value) for value in vars(row).values()] for row in rows)  # in the order of COLUMNS
    return text.getvalue()


def _states(records: Sequence[CellRecord]) -> str:
    """Return what protects every field that is sent, by cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [column.name for column in fields(FieldState)]
    writer.writerow(["cell", *columns])
    for record in records:
        writer.writerows([record.cell, *(csv_cell(getattr(s, c)) for c in columns)] for s in record.fields)
    return text.getvalue()
