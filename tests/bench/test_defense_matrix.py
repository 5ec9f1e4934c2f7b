"""The matrix of protocols, defenses and observers: complete, and without an entry that failed or broke."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fglaudit import registry
from fglaudit.datasets import DatasetSpec
from fglaudit.datasets.csbm_options import CsbmOptions
from fglaudit.datasets.csbm_tasks import CsbmTask
from fglaudit.finding import Status
from fglaudit.partition import PartitionSpec
from fglaudit.rng import derive

ROOT = Path(__file__).resolve().parents[2]
_OPTIONS = CsbmOptions(nodes=60, edges=120, classes=3, dimensions=60, ones_per_row=5, degree_exponent=0.3)
CLIENTS = (DatasetSpec("csbm", csbm=_OPTIONS, split="random"), PartitionSpec("dirichlet", 3, 10000.0))
USERS = (
    DatasetSpec("csbm", csbm=dataclasses.replace(_OPTIONS, nodes=20, edges=32), split="random"),
    PartitionSpec("per-node"),
)
TASK = (DatasetSpec("csbm-dnc", task=CsbmTask(nodes=12, dimensions=8, degree=4)), PartitionSpec("per-node"))
TINY: dict[str, tuple[dict[str, Any], DatasetSpec, PartitionSpec]] = {
    "fedgcn": ({"hops": 1, "rounds": 3}, *CLIENTS),
    "nfedgnn": ({"rounds": 3, "hidden": 8}, *USERS),
    "gfl-appnp": ({"hidden": 4, "rounds": 3, "variant": "v2"}, *TASK),
    "gcn": ({"rounds": 2}, *CLIENTS),
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The measurement lies at the repository's top level, which is not on the path when pytest runs as a command of its
    own."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("bench.defense_matrix")


def test_every_protocol_and_every_defense_has_settings(bench: ModuleType) -> None:
    assert {setup.protocol for setup in bench.SETUPS} == set(registry.names("protocol"))
    for setup in bench.SETUPS:
        assert {defense.name for defense in bench.defenses(setup.protocol)} == set(registry.names("defense"))


def test_observers_are_server_clients_both_and_wire(bench: ModuleType) -> None:
    assert {("server",), ("client:each",), ("server", "client:0"), ("wire",)} <= {o.parties for o in bench.OBSERVERS}
    assert len(set(bench.OBSERVERS)) == len(bench.OBSERVERS)


def test_settings_apply_or_say_why_not(bench: ModuleType) -> None:
    settings = importlib.import_module("bench.defense_settings")
    for setup in bench.SETUPS:
        protocol = setup.build()
        graph = setup.partition.apply(setup.dataset.load(), setup.dataset, derive(0, "partition"))
        context = protocol.context(graph)
        used = 0
        for defense in bench.defenses(setup.protocol):
            reason = defense.unsupported(context)
            assert reason is None or len(reason) > 20, defense
            used += reason is None
        # A line of the table that applies to nothing is a mistake in it.
        assert used >= len(settings.SETTINGS.get(setup.protocol, {})) > 0 or setup.protocol not in settings.SETTINGS, (
            setup
        )


@pytest.mark.parametrize("protocol", TINY)
def test_every_entry_is_a_finding_or_a_reason(bench: ModuleType, protocol: str) -> None:
    setup = bench.Setup(protocol, *TINY[protocol])
    cells = bench.cells(setup)
    assert len(cells) >= len(registry.names("defense"))
    for cell in cells:
        entries = list(bench.measure(cell))
        assert [bench.key(cell, o)["observer"] for o in cell.observers] == [entry["observer"] for entry in entries]
        for entry in entries:
            assert entry["verdict"] in ("succeeds", "no attack succeeded", "undecided", "reason"), entry
            assert entry["attack"] if entry["verdict"] != "reason" else entry["reason"], entry


def test_a_failed_attack_is_no_reason(bench: ModuleType) -> None:
    cell = bench.cells(bench.Setup("fedgcn", *TINY["fedgcn"]))[0]
    blank = importlib.import_module("fglaudit.execution.rows").blank_record(
        cell, "test", Status.FAILED, "ValueError: no"
    )
    assert bench.strongest(blank.findings)["verdict"] == "broken"
