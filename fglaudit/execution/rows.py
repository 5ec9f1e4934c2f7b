"""Records of cells: of what was measured, and of what could not be, so that nothing is dropped (rule 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fglaudit import registry
from fglaudit.execution.examined_fields import Declared, Read, after_attacks, unread
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.interfaces import FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.recording import Recording
from fglaudit.scoring.output import Output
from fglaudit.scoring.score import Measurement
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


def cell_record(
    cell: str,
    suite: str,
    description: dict[str, Any],
    recording: Recording,
    measured: Sequence[Measurement],
    read: Read | None = None,
    declared: Declared | None = None,
) -> CellRecord:
    """Return the record of what was measured on one recording.

    Args:
        read: the fields that attacks read, to tell those that were examined from others.
        declared: the payloads that each attack may read, where every attack that fits was run: the notes then say what
            none of them read.
    """
    findings = [replace(m.finding, suite=suite, cell=cell) for m in measured]
    keys = [f.key for f in findings]
    return CellRecord(
        cell=cell,
        description=description,
        findings=tuple(findings),
        clusters={key: m.clusters for key, m in zip(keys, measured, strict=True) if m.clusters},
        examples={key: [dict(one) for one in m.examples] for key, m in zip(keys, measured, strict=True) if m.examples},
        breakdowns={key: m.breakdown for key, m in zip(keys, measured, strict=True) if m.breakdown},
        partition_facts=dict(recording.partition),
        history=dict(recording.history),
        notes=(*recording.notes, *(unread(recording.fields, findings, declared, read or {}) if declared else ())),
        verdict=recording.verdict,
        fields=recording.fields if read is None else after_attacks(recording.fields, findings, read),
    )


def attacked_record(
    cell: Cell, suite: str, recording: Recording, outputs: Sequence[Output], measured: Sequence[Measurement]
) -> CellRecord:
    """Return the record of a cell whose attacks ran, with what they read and what nobody read."""
    kinds = [type(attack) for attack in cell.attacks]
    declared = {kind.name: {payload.__name__ for payload in kind.reads()} for kind in kinds}
    read = {(o.blank.observer, o.blank.observer_knowledge, o.blank.attack): o.read for o in outputs}
    asked = declared if _all_attacks(cell) else None
    record = cell_record(cell.hash(), suite, cell.description(), recording, measured, read, asked)
    return replace(record, notes=(*record.notes, *without_its_edges(cell.protocol, cell.observers)))


def without_its_edges(protocol: FederatedProtocol, observers: Sequence[ObserverSpec]) -> tuple[str, ...]:
    """Return a note where a server is asked about only as if it did not have the edges on which it computes."""
    servers = [spec for spec in observers if "server" in spec.parties]
    if not protocol.server_holds_edges or not servers or any(spec.topology for spec in servers):
        return ()
    return (
        f"the server of {type(protocol).name} computes on every edge, the one asked about here has none: its labels are"
        " read by less than it has, and edges count as found; add the observer {parties: [server], topology: true}",
    )


def _all_attacks(cell: Cell) -> bool:
    """Whether every attack of the registry that "all" stands for is run: those that read only what the cell's protocol
    sends, but for those that run on request alone."""
    names, sent = {type(attack).name for attack in cell.attacks}, set(type(cell.protocol).emits)
    others = (registry.load("attack", name) for name in registry.names("attack") if name not in names)
    return all(kind.on_request or not sent.issuperset(kind.consumes) for kind in others)
