"""What changed between two runs, and when that is told from noise."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import DEFENSES, PROTOCOLS, make_cell, store
from typer.testing import CliRunner

from fglaudit.cli import app
from fglaudit.errors import FglauditError
from fglaudit.finding import CellRecord, Status
from fglaudit.reports.compare import Change, beyond_spread, by_intervals, compare_folders
from fglaudit.reports.formats.comparison import comparison_text
from fglaudit.scoring.clusters import Interval
from fglaudit.scoring.metrics import metric_interval, read_clusters

BARE = PROTOCOLS[0], DEFENSES[0]


def weaker(record: CellRecord, share: float) -> CellRecord:
    """The same cell with that share of every attack's hits."""
    kept = {key: [[c[0], c[1], c[2] * share, c[3]] for c in rows] for key, rows in record.clusters.items()}
    findings = []
    for f in record.findings:
        key = f"{f.observer}|{f.observer_knowledge}|{f.attack}"
        paired = read_clusters("exact_rate", kept[key])
        found = metric_interval("exact_rate", paired)
        findings.append(
            replace(f, value=found.value, advantage=found.value, advantage_low=found.low, advantage_high=found.high,
                    exact_rate=found.value, identifiable_rate=None, accuracy=(f.accuracy or 0) - 0.1)
        )  # fmt: skip
    return replace(record, findings=tuple(findings), clusters=kept)


def test_a_run_is_equal_to_itself(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", [make_cell(*BARE, seed) for seed in (0, 1)])
    found = compare_folders(folder, folder)
    assert {d.change for d in found.differences} == {Change.EQUAL}
    assert {d.paired for d in found.differences} == {2}
    assert not found.only_first and not found.only_second


def test_what_neither_run_tested_is_not_called_equal(tmp_path: Path) -> None:
    made = make_cell(*BARE, 0, observers=[0])
    edges = replace(made.findings[0], attack="one-node-clusters", quantity="edges", status=Status.NOT_APPLICABLE,
                    reason="the observer saw no pairs", value=None, advantage=None)  # fmt: skip
    folder = store(tmp_path / "run", [replace(made, findings=(*made.findings, edges))])
    text = comparison_text(compare_folders(folder, folder))
    assert "Server: not tested in both: edges" in text
    fewer = store(tmp_path / "fewer", [made])  # another list of attacks
    assert "Server: not tested in both: edges" in comparison_text(compare_folders(folder, fewer))
    assert text.splitlines()[1] == "in all: nothing changed where both runs have a result", "the answer stands first"


def test_less_leakage_is_better_more_is_worse_and_a_little_is_noise(tmp_path: Path) -> None:
    cells = [make_cell(*BARE, seed, observers=[0], parties=45) for seed in (0, 1, 2)]
    first = store(tmp_path / "a", cells)
    less = store(tmp_path / "b", [weaker(c, 0.3) for c in cells])
    little = store(tmp_path / "c", [weaker(c, 0.999) for c in cells])

    def change(a: Path, b: Path, quantity: str = "feature rows") -> Change:
        [found] = [d.change for d in compare_folders(a, b).differences if d.quantity == quantity]
        return found

    assert change(first, less) is Change.BETTER
    assert change(less, first) is Change.WORSE
    assert change(first, little) is Change.NOISE
    assert change(first, less, "accuracy") is Change.WORSE  # 10 points at every seed
    assert re.match(r"in all: \d+ better", comparison_text(compare_folders(first, less)).splitlines()[1])


def test_a_range_over_few_parties_tells_no_change(tmp_path: Path) -> None:
    """With one client its range is one number, and any two runs would differ."""
    for parties, word in ((1, Change.UNKNOWN), (4, Change.UNKNOWN), (5, Change.NOISE)):
        cells = [make_cell(*BARE, 0, observers=[0], parties=parties)]
        first = store(tmp_path / f"a{parties}", [weaker(c, 1.0) for c in cells])  # no proof: the answers are alike
        second = store(tmp_path / f"b{parties}", [weaker(c, 0.9) for c in cells])
        [found] = [d for d in compare_folders(first, second).differences if d.quantity == "feature rows"]
        assert found.change is word
        assert found.text.endswith("too few parties to tell that from chance") is (word is Change.UNKNOWN)


def test_another_answer_is_said_where_figures_tell_nothing(tmp_path: Path) -> None:
    """A run in which rows are proven to leak, after one in which nothing was shown, was "not comparable"; an answer
    that changed under equal figures was "equal", which is not printed at all."""
    made = make_cell(*BARE, 0, observers=[0], parties=2)
    proven = replace(made, findings=tuple(replace(f, identifiable_rate=0.4) for f in made.findings))
    silent = replace(made, findings=tuple(replace(f, identifiable_rate=None, unique_exact=None) for f in made.findings))
    unknown = tuple(replace(f, status=Status.BROKEN_ATTACK, reason="finds no planted row") for f in made.findings)
    folders = {
        "leaks": store(tmp_path / "a", [proven]),
        "not shown": store(tmp_path / "b", [silent]),
        "not tested": store(tmp_path / "c", [replace(made, findings=unknown)]),
    }
    for before, first in folders.items():
        for after, second in folders.items():
            found = compare_folders(first, second)
            [rows] = [d for d in found.differences if d.quantity == "feature rows"]
            assert rows.words == (before, after)
            assert (rows.change is Change.ANSWER) is (before != after), (before, after, rows)
            said = comparison_text(found)
            assert (f"{before}, then {after}" in said and "1 another answer" in said) is (before != after)


def test_accuracies_that_do_not_differ_are_seldom_told_apart() -> None:
    """At two standard errors 30 % of all pairs of two seeds were called better or worse, of three seeds 18 %."""
    rng = random.Random(0)
    for seeds in (2, 3, 5):
        for paired in (True, False):
            told = sum(
                beyond_spread(*([rng.gauss(0, 1) for _ in range(seeds)] for _ in range(2)), paired=paired)
                is not Change.NOISE
                for _ in range(1000)
            )
            assert told <= 75, (seeds, paired, told)
    assert beyond_spread([0.7, 0.71, 0.72], [0.6, 0.61, 0.62], paired=True) is Change.WORSE
    assert beyond_spread([0.7, 0.71, 0.72], [0.6, 0.61, 0.62], paired=False) is Change.WORSE
    assert beyond_spread([0.7], [0.6], paired=True) is Change.NOISE


def test_being_worse_than_a_guess_in_another_way_is_no_change() -> None:
    """Of equal settings on other seeds an attack that noise confuses had advantages of -0.12 and -0.08."""

    def between(low: float, high: float) -> Interval:
        return Interval((low + high) / 2, low, high, "cluster jackknife", 15)

    for one, other in ((between(-0.13, -0.11), between(-0.09, -0.07)), (between(-0.3, -0.2), between(-0.1, 0.01))):
        assert by_intervals(one, other) is by_intervals(other, one) is Change.NOISE
    assert by_intervals(between(-0.1, 0.01), between(0.02, 0.03)) is Change.WORSE
    assert by_intervals(between(0.02, 0.03), between(-0.3, -0.2)) is Change.BETTER


@pytest.mark.parametrize("seeds", [2, 5, 10])
def test_of_many_settings_that_do_not_differ_none_is_told_apart_in_most_runs(seeds: int) -> None:
    """At 5 % for each of nine settings, 37 % of all pairs of runs were said to have changed."""
    rng = random.Random(0)
    settings, runs = 9, 400

    def told(*, paired: bool) -> bool:
        pairs = [[[rng.gauss(0, 1) for _ in range(seeds)] for _ in range(2)] for _ in range(settings)]
        return any(beyond_spread(*pair, paired=paired, settings=settings) is not Change.NOISE for pair in pairs)

    for paired in (True, False):
        assert sum(told(paired=paired) for _ in range(runs)) <= 0.08 * runs


def test_cells_are_paired_where_both_have_them(tmp_path: Path) -> None:
    first = store(tmp_path / "a", [make_cell(*BARE, seed, observers=[0]) for seed in (0, 1, 2)])
    second = store(tmp_path / "b", [make_cell(*BARE, seed, observers=[0]) for seed in (1, 2, 3)])
    found = compare_folders(first, second).differences
    assert {d.paired for d in found} == {2} and {d.change for d in found} == {Change.EQUAL}
    fresh = store(tmp_path / "c", [make_cell(*BARE, 7, observers=[0])])
    assert {d.paired for d in compare_folders(first, fresh).differences} == {0}


def test_runs_are_compared_whether_their_guarantees_were_audited_or_not(tmp_path: Path) -> None:
    """A run with --quick, or on other observers, had no setting in common with the whole one: their cells have other
    names, and train the same."""
    whole = make_cell(*BARE, 0, observers=[0])
    described = {**whole.description, "empirical": False, "secret": True, "attacks": []}
    quick = replace(whole, cell=f"{1:016x}", description=described)
    folders = store(tmp_path / "a", [whole]), store(tmp_path / "b", [quick])
    found = compare_folders(*folders).differences
    assert {d.paired for d in found} == {1} and {d.change for d in found} == {Change.EQUAL}


def test_cells_that_failed_in_one_run_are_named_and_not_compared(tmp_path: Path) -> None:
    """A seed that one run lost read as a change of its accuracy and of what is learned."""
    cells = [make_cell(*BARE, seed, observers=[0]) for seed in (0, 1)]
    cells[1] = weaker(cells[1], 0.1)
    lost = tuple(replace(f, status=Status.FAILED, value=None, advantage=None, accuracy=None) for f in cells[1].findings)
    first = store(tmp_path / "a", cells)
    second = store(tmp_path / "b", [cells[0], replace(cells[1], findings=lost, clusters={}, history={})])
    found = compare_folders(first, second)
    assert {d.paired for d in found.differences} == {1} and {d.change for d in found.differences} == {Change.EQUAL}
    assert not found.unfinished_first and found.unfinished_second[0].endswith(": 1 of 2 cells")
    assert "failed or not run in" in comparison_text(found)


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ({"name": "cora", "root": None}, {"name": "cora", "root": "/data"}, True),
        ({"path": "g.npz", "sha256": "a"}, {"path": "/home/me/g.npz", "sha256": "a"}, True),
        ({"path": "g.npz", "sha256": "a"}, {"path": "g.npz", "sha256": "b"}, False),
    ],
    ids=["root", "own graph", "another graph"],
)
def test_where_the_files_of_a_data_set_lie_does_not_count(
    here: dict[str, str | None], there: dict[str, str | None], same: bool, tmp_path: Path
) -> None:
    made = make_cell(*BARE, 0, observers=[0])
    first, second = (
        store(tmp_path / name, [replace(made, description={**made.description, "dataset": dataset})])
        for name, dataset in (("a", here), ("b", there))
    )
    if same:
        assert {d.paired for d in compare_folders(first, second).differences} == {1}
    else:
        with pytest.raises(FglauditError, match=r"none in common; .* list none and the defense in one suite"):
            compare_folders(first, second)


def test_settings_of_one_run_alone_are_named(tmp_path: Path) -> None:
    first = store(tmp_path / "a", [make_cell(*BARE, 0), make_cell(PROTOCOLS[1], DEFENSES[1], 0)])
    second = store(tmp_path / "b", [make_cell(*BARE, 0)])
    found = compare_folders(first, second)
    assert len(found.only_first) == 1 and "drop-singletons" in found.only_first[0] and not found.only_second


def test_wrong_folders_are_one_message(tmp_path: Path) -> None:
    run = store(tmp_path / "run", [make_cell(*BARE, 0)])
    other = store(tmp_path / "other", [make_cell(PROTOCOLS[1], DEFENSES[1], 0)])
    with pytest.raises(FglauditError, match=r"none in common; .* list none and the defense in one suite"):
        compare_folders(run, other)
    with pytest.raises(FglauditError, match="has no 'cells' folder"):
        compare_folders(run, tmp_path)
    with pytest.raises(FglauditError):
        compare_folders(tmp_path / "nowhere", run)
    with pytest.raises(FglauditError, match=r"suite.yaml is a file; name the --out folder of a run$"):
        compare_folders(run, run / "suite.yaml")


def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    cells = [make_cell(*BARE, 0, observers=[0], parties=45)]
    first, second = store(tmp_path / "a", cells), store(tmp_path / "b", [weaker(c, 0.3) for c in cells])
    text = CliRunner().invoke(app, ["compare", str(first), str(second)])
    assert text.exit_code == 0 and "Server: feature rows: 1 better (1 setting)" in text.output
    told = json.loads(CliRunner().invoke(app, ["compare", str(first), str(second), "--json"]).output)
    [features] = [d for d in told["differences"] if d["quantity"] == "feature rows"]
    assert features["change"] == "better" and features["second"] < features["first"]
    assert features["words"] == ["leaks", "leaks"]
