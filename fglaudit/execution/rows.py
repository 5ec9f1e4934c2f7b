"""Rows for what could not be measured, so that nothing is dropped (rule 7)."""

from __future__ import annotations

from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.suite.cell import Cell, identity


def blank_record(cell: Cell, suite: str, status: Status, reason: str) -> CellRecord:
    """Return the record of a cell that could not be run: one row per observer x attack, nothing dropped (rule 7)."""
    known = {**identity(cell), "suite": suite, "cell": cell.hash()}
    rows = tuple(
        Finding(
            observer=spec.name,
            observer_knowledge=spec.knowledge,
            attack=type(attack).name,
            status=status,
            reason=reason,
            **known,
        )
        for spec in cell.observers
        for attack in cell.attacks
    )
    return CellRecord(cell.hash(), cell.description(), rows)
