"""Payload types of a plugin's own: read where messages say whose they are, and named where nobody reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import own_payload_protocol
import pytest
import torch
from own_payload_protocol import Sketches, Sketching, Unnamed

import fglaudit
import fglaudit.payloads as shipped
from fglaudit.attacks.learned.learned_inversion import LearnedInversion
from fglaudit.attacks.learned.own_payloads import own_types
from fglaudit.execution.run_cell import run_cell
from fglaudit.finding import LEARNED, Finding, Status
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import NeighborSums
from fglaudit.suite.overrides import load_suite
from fglaudit.suite.suite import fitting
from fglaudit.testing import example_graph

SUITE = """
name: mine
datasets: [{name: csbm, split: random, csbm: {nodes: 60, edges: 120, dimensions: 40, ones_per_row: 5}}]
seeds: [0]
partitions: [{scheme: dirichlet, clients: 3, beta: 10000}]
protocols: ["mine.py:Sketching"]
observers: [{parties: [server]}]
attacks: all
"""


def graph() -> dict[str, Any]:
    made = example_graph(nodes=60, features=24)
    return {"x": made.x.numpy(), "y": made.y.numpy(), "edge_index": made.edge_index.numpy()}


def audited(protocol: Sketching, auxiliary: float = 0.0, defense: Any = "none") -> tuple[Finding, tuple[str, ...]]:
    observer = ObserverSpec(("server",), auxiliary=auxiliary)
    report = fglaudit.audit(
        graph(), protocol=protocol, defense=defense, clients=3, observers=[observer], empirical=False
    )
    record = report.records[0]
    assert [f.attack for f in record.findings] == ["learned-inversion"]
    return record.findings[0], record.notes


@pytest.mark.parametrize(
    ("protocol", "auxiliary"),
    [(Sketching(), 0.0), (Sketching(wider=5), 0.0), (Sketching("curve"), 0.0), (Sketching("secret"), 0.5)],
    ids=["rotation", "wider", "curve", "secret"],
)
def test_rows_in_a_payload_of_somebody_elses_are_read(protocol: Sketching, auxiliary: float) -> None:
    found, notes = audited(protocol, auxiliary)
    assert found.status is Status.OK and (found.exact_rate or 0) >= 0.95 > 0.5 > (found.control_exact_rate or 0)
    assert not any(note.startswith("nobody read Sketches") for note in notes)


def test_rows_that_name_no_node_are_said_to_be_read_by_nobody() -> None:
    found, notes = audited(Sketching(named=False))
    assert found.status is Status.NOT_APPLICABLE and "whose" in found.reason
    assert any(note.startswith("nobody read Unnamed.values") for note in notes)


def test_a_low_score_on_a_payload_of_somebody_elses_reassures_nobody() -> None:
    found, _ = audited(Sketching("secret"))
    assert found.adapted == f"no: {LEARNED}" and not found.can_reassure


def test_payloads_are_read_that_the_project_does_not_ship() -> None:
    reads = LearnedInversion.reads()
    assert {NeighborSums, Sketches, Unnamed} <= set(reads) and Sketches not in LearnedInversion.also_reads
    assert [type(attack) for attack in fitting(Sketching(), [LearnedInversion()])] == [LearnedInversion]


def test_no_payload_that_comes_with_the_project_is_somebody_elses() -> None:
    ours = {kind for name in shipped.__all__ if isinstance(kind := getattr(shipped, name), type)}
    assert NeighborSums in ours and not ours & set(own_types())


def test_a_file_of_somebody_elses_is_audited_from_a_suite(tmp_path: Path) -> None:
    """As ``fglaudit run`` does: the file is loaded, its payload type is kept of what is sent, and read."""
    source = Path(own_payload_protocol.__file__).read_text("utf-8")
    (tmp_path / "mine.py").write_text(source.replace("Sketches", "Scribbles").replace("Unnamed", "Scraps"), "utf-8")
    (tmp_path / "suite.yaml").write_text(SUITE, "utf-8")
    (cell,) = load_suite(str(tmp_path / "suite.yaml")).cells()
    record = run_cell(cell, suite="mine", device=torch.device("cpu"))
    (found,) = record.findings
    assert found.attack == "learned-inversion" and (found.exact_rate or 0) >= 0.95
    states = {(state.payload, state.field): state.state for state in record.fields if state.observer == "server"}
    assert states["Scribbles", "values"] == "unexamined"  # it shows a leak, never its absence
    assert not any(note.startswith("nobody read") for note in record.notes)
