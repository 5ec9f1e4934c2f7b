"""What a user may not call private, through the command line: refused with the reason, or run with a note."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fglaudit.cli import main
from fglaudit.execution.exit_code import ExitCode

SUITE = """
name: small
datasets: [{{name: csbm, csbm: {{nodes: 60, edges: 120, dimensions: 20, classes: 4}}}}]
partitions: [{{scheme: {partition}}}]
protocols: [{protocol}]
defenses: [{defense}]
observers: [{{parties: [server]}}]
attacks: [row-presence]
"""
EVENLY = "dirichlet, clients: 3, beta: 10000"
REPORTS = "{name: private-reports, encoder_rounds: 2, rounds: 1, width: 8}"
SUMS = "{name: fedgcn, hops: 1, rounds: 1}"
LATENTS = "{name: nfedgnn, rounds: 1}"
MODELS = "{name: fedgcn, hops: 0, rounds: 1}"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(protocol: str, defense: str, partition: str = EVENLY) -> int:
    """Run one cell into ``out``; return the exit code."""
    Path("small.yaml").write_text(SUITE.format(protocol=protocol, defense=defense, partition=partition))
    with pytest.raises(SystemExit) as caught:
        main(["run", "small.yaml", "--out", "out", "--device", "cpu", "--jobs", "1"])
    return int(caught.value.code or 0)


def rows(name: str) -> list[dict[str, str]]:
    with Path("out", name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("epsilon", [".inf", "0", "-1"])
@pytest.mark.parametrize(
    ("protocol", "defense"),
    [
        (REPORTS, "k-ary-response"),
        (SUMS, "gaussian"),
        (SUMS, "multi-bit"),
        (SUMS, "local-features"),
        (MODELS, "dp-sgd"),
        (MODELS, "dp-fedavg"),
    ],
)
def test_an_epsilon_that_is_infinite_or_not_positive_is_no_guarantee(
    protocol: str, defense: str, epsilon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(protocol, f"{{name: {defense}, epsilon: {epsilon}}}") == ExitCode.INPUT
    said = capsys.readouterr().err
    assert "epsilon" in said and ("finite" in said or "positive" in said) and not Path("out").exists()


def test_more_classes_than_reports_can_carry_are_a_failed_cell_with_the_reason() -> None:
    assert run(REPORTS.replace("width: 8", "width: 8, most_classes: 2"), "{name: k-ary-response}") == ExitCode.FAILED
    assert all("4 for 2; raise most_classes" in row["reason"] for row in rows("findings.csv"))


def test_an_encoder_trained_on_nodes_that_the_guarantee_names_is_refused_with_the_reason() -> None:
    assert run(REPORTS, "{name: k-ary-response, unit: node}") == ExitCode.INPUT
    refused = rows("coverage.csv")
    assert refused and not rows("findings.csv")
    assert all("encoder is trained on the rows of training nodes" in row["reason"] for row in refused)


def test_reports_of_rows_that_training_reads_have_no_epsilon() -> None:
    """With two own hops in the inputs, rows of nodes that the guarantee would name enter the models."""
    own = REPORTS.replace("width: 8", "width: 8, features_at_home: own-subgraph")
    assert run(own, "{name: k-ary-response}") == ExitCode.DONE
    found = [*rows("findings.csv"), *rows("coverage.csv")]
    assert found and not any(row["epsilon_accounted"] or row["guarantee"] == "verified" for row in found)
    assert any("2 own steps from a training node" in row["mechanism"] for row in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "defense", "partition", "note"),
    [
        (SUMS, "{name: gaussian}", EVENLY, "the noisy sums are used as they arrive"),
        (
            "{name: nfedgnn, rounds: 1}",
            "{name: clipped-noise}",
            "per-node",
            "the noisy latents are used as they arrive",
        ),
    ],
)
def test_noise_without_smoothing_is_noted_in_record_and_report(
    protocol: str, defense: str, partition: str, note: str
) -> None:
    assert run(protocol, defense, partition) == ExitCode.DONE
    (cell,) = Path("out", "cells").glob("*.json")
    assert any(note in said for said in json.loads(cell.read_text())["notes"])
    for name in ("report.html", "report.md"):
        assert note in Path("out", name).read_text()
