"""What the reports say beside every accuracy: chance, what costs nothing, and what a setting bought above that."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_cell, store, texts
from rich.console import Console

from fglaudit.finding import CellRecord
from fglaudit.guarantees import FieldState, Protection, Verdict, Word
from fglaudit.reports.choosing.accuracy_gains import accuracy_words, costs_nothing, gains, spent
from fglaudit.reports.choosing.underperforming import underperforming
from fglaudit.reports.formats.console import print_answers
from fglaudit.reports.labels import Labels
from fglaudit.reports.numbers import MINUS, THIN
from fglaudit.reports.records import load_run
from fglaudit.reports.summary import Setting, setting_key, summarize

NONE: tuple[str, dict[str, Any]] = ("none", {})
NOISE: tuple[str, dict[str, Any]] = ("gaussian", {"epsilon": 8.0, "delta": 1e-5})
MODELS, SUMS, CODES = ("ModelUpdate",), ("NeighborSums", "ModelUpdate"), ("HopSums", "ModelUpdate")


def cell(
    protocol: str, sent: Sequence[str], right: Sequence[int], defense: tuple[str, dict[str, Any]] = NONE, seed: int = 0
) -> CellRecord:
    """A record of a training that sent ``sent`` and answered the test nodes as ``right`` says."""
    made = make_cell((protocol, {"rounds": 9}, 0.5), defense, seed, observers=[0])
    accuracy, size = sum(right) / len(right), 8 if sent else 0
    known: dict[str, Any] = {"accuracy": accuracy, "accuracy_global": accuracy, "bytes_up": size, "bytes_down": size}
    return replace(
        made,
        findings=tuple(replace(row, **known) for row in made.findings),
        fields=tuple(FieldState("server", name, "values", Protection.NOTHING, "") for name in sent),
        partition_facts={**made.partition_facts, "chance": 0.25},
        history={"accuracy": [accuracy], "right": [float(one) for one in right]},
        verdict=Verdict(Word.VERIFIED, epsilon=8.0, unit="node") if defense is NOISE else None,
    )


def settings_of(folder: Path, *records: CellRecord) -> list[Setting]:
    """Return the settings of a run with ``records``, by protocol and defense."""
    return summarize(load_run(store(folder / "run", records)))


def of(settings: Sequence[Setting], protocol: str, defense: str = "none") -> Setting:
    [found] = [s for s in settings if (s.first.protocol, s.first.defense) == (protocol, defense)]
    return found


def test_what_sends_no_feature_but_in_models_costs_nothing(tmp_path: Path) -> None:
    right = [1, 0]
    settings = settings_of(
        tmp_path,
        cell("local-gcn", (), right),
        cell("fedgcn", MODELS, right),
        cell("structure-only", CODES, right),
        cell("fedgcn-sums", SUMS, right),
        cell("fedgcn-sums", SUMS, right, NOISE),
    )
    free = [s.first.protocol for s in settings if costs_nothing(s)]
    assert free == ["fedgcn", "local-gcn", "structure-only"]
    clear, noisy = of(settings, "fedgcn-sums"), of(settings, "fedgcn-sums", "gaussian")
    assert (spent(of(settings, "structure-only")), spent(clear), spent(noisy)) == (0.0, math.inf, 7.98)


def test_an_epsilon_of_edges_says_nothing_of_features_and_no_codes_stand_beside_it(tmp_path: Path) -> None:
    edges = cell("gap", SUMS, [1, 1, 1, 0], NOISE)
    edges = replace(edges, findings=tuple(replace(row, privacy_unit="edge") for row in edges.findings))
    settings = settings_of(
        tmp_path, cell("local-gcn", (), [1, 0, 0, 0]), cell("structure-only", CODES, [1, 1, 0, 0]), edges
    )
    (gain,) = gains(settings, Labels.of(settings)).values()
    assert spent(of(settings, "gap", "gaussian")) == math.inf
    assert (gain.control, gain.gain) == ("local-gcn", 0.5)


def test_gains_are_paired_on_nodes(tmp_path: Path) -> None:
    """Of 100 nodes the setting gets right what the control does, and 9 more: a gain of 9 points whose interval is that
    of 9 differences of 1 among 100, far smaller than that of two separate accuracies."""
    control, better = [1] * 60 + [0] * 40, [1] * 69 + [0] * 31
    settings = settings_of(tmp_path, cell("structure-only", CODES, control), cell("private", SUMS, better, NOISE))
    (gain,) = gains(settings, Labels.of(settings)).values()
    assert gain.gain == pytest.approx(0.09)
    assert gain.high - gain.gain == pytest.approx(1.984 * math.sqrt(0.09 * 0.91 / 99), rel=1e-3)
    assert gain.anything and gain.words == "+9.0 (+3.3 to +14.7) over structure-only, one seed"


def test_a_defense_that_buys_nothing_says_so_everywhere(tmp_path: Path) -> None:
    records = [cell("structure-only", CODES, [1, 1, 1, 0]), cell("fedgcn", SUMS, [1, 0, 0, 0], NOISE)]
    settings_of(tmp_path, *records)
    said = f"bought {MINUS}50.0 ({MINUS}141.9 to +41.9) over structure-only, one seed: nothing"
    found = texts(tmp_path / "run")
    assert said in found["report.html"] and said in found["report.md"]
    for page in ("report.html", "report.md"):
        assert "control: sends no feature" in found[page] and "25.0 %" in found[page].replace("\u202f", " ")
        assert "none by any setting" in found[page] and "always naming the largest class" in found[page]
    rows = {row["protocol"]: row for row in csv.DictReader(io.StringIO(found["summary.csv"]))}
    assert (rows["fedgcn"]["chance"], rows["fedgcn"]["bought"]) == ("0.25", "-0.5")
    assert (rows["fedgcn"]["bought_over"], rows["structure-only"]["bought"]) == ("structure-only", "")
    console = Console(file=io.StringIO(), width=260)
    print_answers(console, load_run(tmp_path / "run"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(rf"fedgcn, gaussian +25.0 % +{MINUS}50.0 \({MINUS}141.9 to \+41.9\): nothing", shown)
    assert "chance: 25.0 %" in shown and re.search(r"structure-only +75.0 % +control", shown)


def test_without_a_control_nothing_is_claimed_to_be_bought(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, cell("fedgcn", SUMS, [1, 1, 0, 0]), cell("fedgcn", SUMS, [1, 0, 0, 0], NOISE))
    assert gains(settings, Labels.of(settings)) == {}
    page = texts(tmp_path / "run")["report.html"]
    assert "<small>bought" not in page and "Points bought" not in page


def test_several_seeds_take_the_wider_interval(tmp_path: Path) -> None:
    """Two seeds whose gains are 0 and 10 points: Student's t of one degree of freedom is wider than nodes are."""
    base, more = [1] * 50 + [0] * 50, [1] * 60 + [0] * 40
    settings = settings_of(
        tmp_path,
        *(cell("structure-only", CODES, base, seed=seed) for seed in (0, 1)),
        cell("private", SUMS, base, NOISE, 0),
        cell("private", SUMS, more, NOISE, 1),
    )
    gain = gains(settings, Labels.of(settings))[setting_key(of(settings, "private", "gaussian").records[0])]
    assert gain.seeds == 2 and gain.high - gain.gain == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert not gain.anything


@pytest.mark.parametrize(("right", "said"), [(20, True), (60, False), (64, False), (90, False)])
def test_a_protocol_far_below_its_local_version_is_named(right: int, said: bool, tmp_path: Path) -> None:
    """Out of 100 test nodes; the local version has 66 right, others than the protocol where both can."""
    answers = [1 if node < right else 0 for node in range(100)]
    local = [1 if node >= 34 else 0 for node in range(100)]
    settings = settings_of(
        tmp_path,
        cell("fedgcn", SUMS, answers),
        cell("local-gcn", (), local),
        cell("fedgcn", SUMS, [0] * 100, NOISE),
    )
    lines = underperforming(settings, Labels.of(settings))
    assert bool(lines) == said and len(lines) <= 1
    assert all("46.0 points below local-gcn" in line and "optimizer: adam" in line for line in lines)


def test_nothing_falls_behind_where_nothing_is_to_compare_with(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, cell("fedgcn", SUMS, [0] * 100))
    assert underperforming(settings, Labels.of(settings)) == []


def sent_by_labels(epsilon: float, right: Sequence[int]) -> CellRecord:
    """Label propagation with labels sent at ``epsilon``; 0: as they are."""
    made = cell("label-propagation", ("ClassReports", "HopSums"), right)
    fields = {"name": "label-propagation", "label_epsilon": epsilon}
    return replace(made, description={**made.description, "protocol": fields})


@pytest.mark.parametrize(("labels", "allowed", "control"), [
    (0.0, None, "label-propagation"),
    (1.0, 1.0, "label-propagation"),
    (0.0, 1.0, "local-gcn"),
    (2.0, 1.0, "local-gcn"),
])  # fmt: skip
def test_label_propagation_stands_beside_what_promises_labels_no_smaller_epsilon(
    labels: float, allowed: float | None, control: str, tmp_path: Path
) -> None:
    rows = cell("private", SUMS, [1, 1, 1, 0], NOISE)
    if allowed is not None:
        rows = replace(
            rows, description={**rows.description, "protocol": {"name": "private", "label_epsilon": allowed}}
        )
    settings = settings_of(tmp_path, cell("local-gcn", (), [1, 0, 0, 0]), sent_by_labels(labels, [1, 1, 0, 0]), rows)
    assert [s.first.protocol for s in settings if costs_nothing(s)] == ["label-propagation", "local-gcn"]
    (gain,) = gains(settings, Labels.of(settings)).values()
    assert gain.control.split()[0] == control
    page = texts(tmp_path / "run")["report.html"]
    assert "control: sends training labels, no feature" in page and "label-propagation" in page


@pytest.mark.parametrize(("largest", "said"), [(0.25, "95.0"), (0.97, "95.0 % (balanced 50.0 %)")])
def test_where_one_class_is_nearly_all_the_mean_over_classes_stands_beside(
    tmp_path: Path, largest: float, said: str
) -> None:
    one = cell("fedgcn", SUMS, [1] * 19 + [0])
    rows = tuple(replace(row, accuracy_balanced=0.5) for row in one.findings)
    facts = {**one.partition_facts, "chance": largest}
    [setting] = settings_of(tmp_path, replace(one, findings=rows, partition_facts=facts))
    words = accuracy_words(setting).replace(THIN, " ")
    assert words.startswith(said) and ("balanced" in words) == (largest > 0.5)
