"""The cells that a run is to compute, as ``run.json`` holds them: enough to report the rows of a cell that was never
run, in about a hundred bytes each.

What many cells share (a data set, a defense, the list of observers and attacks) is stored once, in a table by the key
that it stands under; a cell is its hash and one number for each table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fglaudit.execution.folder.stored_record import NAME, check_columns
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.suite.cell import Cell, identity

_ROWS = "rows"  # [observer, its knowledge, attack] of every finding
_DESCRIPTION, _COLUMN = "description.", "column."
_SHARED = (
    "dataset", "partition", "clients", "protocol", "protocol_args", "server", "defense", "defense_args", "seed",
    "dataset_args",
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """One cell of the plan, not run yet.

    Attributes:
        description: the cell as a suite would name it.
        columns: of its findings, those known beforehand.
        rows: observer, knowledge and attack of each finding.
    """

    cell: str
    description: Mapping[str, Any]
    columns: Mapping[str, Any]
    rows: tuple[tuple[str, str, str], ...]

    @staticmethod
    def of(cell: Cell, name: str) -> Planned:
        """Plan ``cell``, whose hash is ``name``."""
        known = identity(cell)
        rows = tuple(
            (spec.name, spec.knowledge, type(attack).name) for spec in cell.observers for attack in cell.attacks
        )
        return Planned(name, cell.description(), {column: known[column] for column in _SHARED}, rows)

    @staticmethod
    def like(record: CellRecord) -> Planned:
        """Plan the cell of a record that is there."""
        first = asdict(record.findings[0])
        rows = tuple((f.observer, f.observer_knowledge, f.attack) for f in record.findings)
        return Planned(record.cell, record.description, {column: first[column] for column in _SHARED}, rows)

    def record(self, suite: str, reason: str) -> CellRecord:
        """Return the record of this cell for as long as there is no other: ``failed`` rows with ``reason``."""
        rows = tuple(
            Finding(
                suite=suite,
                cell=self.cell,
                observer=observer,
                observer_knowledge=knowledge,
                attack=attack,
                status=Status.FAILED,
                **self.columns,
            ).ended(Status.FAILED, reason)
            for observer, knowledge, attack in self.rows
        )
        return CellRecord(self.cell, dict(self.description), rows)


def plan_to_json(plan: Iterable[Planned]) -> dict[str, Any]:
    """Return the plan as tables and cells."""
    tables: dict[str, dict[str, int]] = {}
    keys: list[str] = []
    cells = []
    for planned in plan:
        values = {
            **{_DESCRIPTION + key: value for key, value in planned.description.items()},
            **{_COLUMN + key: value for key, value in planned.columns.items()},
            _ROWS: planned.rows,
        }
        keys += [key for key in values if key not in tables and tables.setdefault(key, {}) is not None]
        numbers = []
        for key in keys:
            if key not in values:
                numbers.append(-1)
                continue
            text = json.dumps(values[key], default=str)
            numbers.append(tables[key].setdefault(text, len(tables[key])))
        cells.append([planned.cell, *numbers])
    return {"keys": keys, "tables": {key: [json.loads(text) for text in table] for key, table in tables.items()},
            "cells": cells}  # fmt: skip


def plan_from_json(data: Mapping[str, Any]) -> tuple[Planned, ...]:
    """Read back :func:`plan_to_json`.

    Raises:
        ValueError: for what it cannot have written.
    """
    try:
        keys, tables = list(data["keys"]), dict(data["tables"])
        plan = tuple(_planned(entry, keys, tables) for entry in data["cells"])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no plan: {type(error).__name__}: {error}") from error
    return plan


def _planned(entry: Sequence[Any], keys: Sequence[str], tables: Mapping[str, Sequence[Any]]) -> Planned:
    cell, *numbers = entry
    if not (isinstance(cell, str) and NAME.fullmatch(cell)):
        raise ValueError("a cell is named by 16 hex digits")
    values = {key: tables[key][number] for key, number in zip(keys, numbers, strict=False) if number >= 0}
    columns = {key: values[_COLUMN + key] for key in _SHARED}
    check_columns(columns)
    rows = tuple((str(o), str(k), str(a)) for o, k, a in values[_ROWS])
    if not rows:
        raise ValueError("a cell has at least one finding")
    described = {key.removeprefix(_DESCRIPTION): v for key, v in values.items() if key.startswith(_DESCRIPTION)}
    return Planned(cell, described, columns, rows)
