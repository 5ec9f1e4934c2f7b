"""Rows for what could not be measured, so that nothing is dropped (rule 7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fglaudit.datasets import DatasetSpec
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.observers import ObserverSpec
from fglaudit.partition import PartitionSpec
from fglaudit.suite.cell import Cell, arguments
from fglaudit.view import Observer


def blank_finding(cell: Cell, suite: str, spec: ObserverSpec, attack: str, status: Status, reason: str) -> Finding:
    """Return a row with the cell's identity and a status, for whatever could not be measured."""
    observer = Observer(
        topology=spec.topology, degrees=spec.degrees, initial_weights=spec.initial_weights, auxiliary=spec.auxiliary
    )
    partition = arguments(replace(cell.partition, clients=PartitionSpec.clients)).removeprefix("scheme=")
    return Finding(
        suite=suite,
        cell=cell.hash(),
        dataset=_dataset_name(cell.dataset),
        partition=partition,
        clients=cell.partition.clients,
        protocol=type(cell.protocol).name,
        protocol_args=arguments(cell.protocol),
        server=cell.server,
        defense=type(cell.defense).name,
        defense_args=arguments(cell.defense),
        seed=cell.seed,
        observer=spec.name,
        observer_knowledge=observer.knowledge,
        attack=attack,
        status=status,
        reason=reason,
    )


def blank_record(cell: Cell, suite: str, status: Status, reason: str) -> CellRecord:
    """Return the record of a cell that could not be run: one row per observer x attack, nothing dropped (rule 7)."""
    rows = tuple(
        blank_finding(cell, suite, spec, type(attack).name, status, reason)
        for spec in cell.observers
        for attack in cell.attacks
    )
    return CellRecord(cell.hash(), cell.description(), rows)


def _dataset_name(spec: DatasetSpec) -> str:
    name = spec.name if spec.path is None else Path(spec.path).stem
    return name if spec.features == "raw" else f"{name} ({spec.features})"
