"""``fglaudit reproduce --status``: what was measured of the papers' figures, and what misses."""

from __future__ import annotations

import csv
import re
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.fedgt import accuracy as fedgt_accuracy
from fglaudit.cli import app
from fglaudit.errors import FglauditError
from fglaudit.reproduce.measurements import Table
from fglaudit.reproduce.measuring import measure, obstacle, rows_of, seeds_of
from fglaudit.reproduce.published import (
    AT_THEIR_RATE,
    BY_THEIR_CODE,
    FEW_HIDDEN,
    PARTED_CLUSTERS,
    TITLES,
    Published,
    all_published,
)
from fglaudit.reproduce.run import KEY, VALUES
from fglaudit.reproduce.status.found import key_of
from fglaudit.reproduce.status.judged import BARRED, EXPLAINED, HIT, MISSED, OPEN, Judged, judged, share_unexplained
from fglaudit.reproduce.status.text import status_of, summary

DOCS = Path(__file__).parents[2]
EMPTY = Path("no-such-folder")


def packaged(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files("fglaudit.reproduce").joinpath(name).read_text("utf-8").splitlines()))


def rows_by_key() -> dict[tuple[str, ...], Published]:
    return {(table, *row.key.values()): row for table in TITLES for row in rows_of(table)}


def test_what_is_recorded_stands_on_its_page() -> None:
    known = rows_by_key()
    for line in packaged("recorded.csv"):
        assert (line["table"], *(line[column] for column in KEY[:-1])) in known
        page = (DOCS / line["page"]).read_text()
        assert re.search(rf"(?<![\d.]){re.escape(line['mean'])}(?![\d])", page), line
        assert int(line["runs"]) >= 1


def test_what_is_stored_are_runs_of_known_rows_with_their_seeds() -> None:
    known, seen = rows_by_key(), set()
    for line in packaged("stored.csv"):
        key = (line["table"], *(line[column] for column in KEY[:-1]))
        assert int(line["seed"]) in seeds_of(known[key])
        assert (*key, line["seed"]) not in seen
        seen.add((*key, line["seed"]))


def test_causes_are_those_of_printed_rows_and_have_a_page() -> None:
    for line in packaged("causes.csv"):
        assert (DOCS / line["page"]).is_file() and len(line["cause"]) > 20
        labels = [row.label for row in all_published() if row.table == line["table"]]
        assert any(all(word in label for word in line["words"].split("; ")) for label in labels), line


def invented(monkeypatch: pytest.MonkeyPatch, **tables: list[dict[str, str]]) -> None:
    for module in ("found", "judged"):
        monkeypatch.setattr(
            f"fglaudit.reproduce.status.{module}.packaged",
            lambda name: tuple(tables.get(name.removesuffix(".csv"), ())),
        )


def measured(folder: Path, row: Published, *values: float, method: str = "") -> None:
    """Store runs of ``row`` with these values."""
    table = Table(folder / row.table / "measurements.csv", KEY, VALUES)
    for seed, value in enumerate(values):
        key = row.key | ({"method": method} if method else {})
        table.add({**key, "seed": seed, "value": value, "seconds": 1, "gb_up": 0, "gb_down": 0, "device": "cpu"})


def of(row: Published, folder: Path) -> Judged:
    """Return what became of ``row``, given the runs in ``folder``."""
    (found,) = (each for each in judged(folder, [row.table]) if each.row == row)
    return found


def printed(table: str, label: str) -> Published:
    return next(row for row in all_published() if row.table == table and row.label == label)


ZERO_HOPS = "FedGCN(0-hop), cora, beta=1, 10 clients"


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [((), OPEN), ((1.4,), HIT), ((-1.4,), HIT), ((1.6,), MISSED), ((-1.6,), MISSED), ((5.0, -4.0), HIT)],
)
def test_a_mean_misses_on_either_side(
    gaps: tuple[float, ...], verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgcn-table2", ZERO_HOPS)
    assert row.mean is not None
    measured(tmp_path, row, *(row.mean + gap for gap in gaps))
    found = of(row, tmp_path)
    assert found.verdict == verdict and found.runs == len(gaps)


def test_how_many_runs_are_behind_the_figures_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    for label, runs in ((ZERO_HOPS, 10), ("FedGCN(0-hop), citeseer, beta=1, 10 clients", 9)):
        measured(tmp_path, printed("fedgcn-table2", label), *([60.0] * runs))
    assert "All seeds of their tables are behind 1 of these 2." in status_of("", tmp_path)
    measured(tmp_path, printed("fedgcn-table2", "FedGCN(1-hop), cora, beta=1, 10 clients"), 60.0)
    assert "All seeds of their tables are behind 1 of these 3, one alone behind 1." in status_of("", tmp_path)


def test_the_source_with_more_runs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = printed("fedgcn-table2", ZERO_HOPS)
    earlier = {"table": row.table, **row.key, "mean": "10.0", "spread": "", "runs": "2", "page": "docs/x.md"}
    invented(monkeypatch, recorded=[earlier], stored=[{"table": row.table, **row.key, "seed": "0", "value": "60.0"}])

    def now() -> tuple[float | None, int]:
        found = of(row, tmp_path)
        return found.mean, found.runs

    assert now() == (10.0, 2)
    measured(tmp_path, row, 62.0, 64.0)  # seed 0 was stored: the user's own counts
    assert now() == (63.0, 2)


def test_a_miss_that_the_authors_code_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    row = printed("fedgcn-table2", "FedGCN(1-hop), cora, beta=1, 10 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean - 3)
    theirs = row.method + BY_THEIR_CODE
    assert share_unexplained(judged(tmp_path)) == 1
    measured(tmp_path, row, row.mean + 3, method=theirs)
    assert share_unexplained(judged(tmp_path)) == 1
    (tmp_path / row.table / "measurements.csv").unlink()
    measured(tmp_path, row, row.mean - 3)
    measured(tmp_path, row, row.mean + 1, method=theirs)
    found = of(row, tmp_path)
    assert found.verdict == EXPLAINED and found.page == "docs/fedgcn.md" and share_unexplained(judged(tmp_path)) == 0


@pytest.mark.parametrize(
    ("table", "label", "reading", "word"),
    [
        ("fedgt-table12", "FedGT (FedAvg aggregation), cora, overlapping, 50 clients", AT_THEIR_RATE, "0.01"),
        ("fedgt-table2", "FedSage+, cora, overlapping, 50 clients", FEW_HIDDEN, "a tenth"),
    ],
)
@pytest.mark.parametrize(("gap", "verdict"), [(1.0, EXPLAINED), (-1.0, EXPLAINED), (-3.0, MISSED)])
def test_a_miss_that_another_reading_explains(
    table: str,
    label: str,
    reading: str,
    word: str,
    gap: float,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    invented(monkeypatch)
    row = printed(table, label)
    assert row.mean is not None
    measured(tmp_path, row, row.mean + gap, method=row.method + reading)
    assert of(row, tmp_path).verdict == OPEN, "the text was not measured"
    measured(tmp_path, row, row.mean + 8)
    found = of(row, tmp_path)
    assert found.verdict == verdict and found.mean == row.mean + 8
    assert (word in found.reason) == (verdict == EXPLAINED)


@pytest.mark.parametrize(("gap", "verdict"), [(1.0, HIT), (3.0, MISSED)])
def test_a_row_measured_by_the_code_alone_is_judged_by_it(
    gap: float, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgcn-table2", "FedGCN(1-hop), cora, beta=1, 10 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean + gap, method=row.method + BY_THEIR_CODE)
    found = of(row, tmp_path)
    assert (found.verdict, found.mean, found.runs) == (verdict, row.mean + gap, 1)


CAUSE = {
    "table": "fedgcn-table2",
    "words": "FedGCN(0-hop); cora",
    "reading": "",
    "page": "docs/fedgcn.md",
    "cause": "a reason",
}


def test_a_named_cause_counts_for_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch, causes=[CAUSE])
    for label in (ZERO_HOPS, "FedGCN(0-hop), citeseer, beta=1, 10 clients"):
        measured(tmp_path, printed("fedgcn-table2", label), 0.0)
    found = {each.row.dataset: each for each in judged(tmp_path) if each.mean is not None}
    assert found["cora"].verdict == EXPLAINED and found["cora"].reason == "a reason"
    assert found["citeseer"].verdict == MISSED
    text = status_of("", tmp_path)
    assert "2 were: 0 are within" in text and "1 miss without (0 above, 1 below): 50.0 %" in text


@pytest.mark.parametrize(("gap", "verdict"), [(None, MISSED), (-1.4, EXPLAINED), (1.4, EXPLAINED), (10.5, MISSED)])
def test_a_named_cause_counts_only_where_its_own_reading_meets_the_figure(
    gap: float | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a row that was measured as that reading has it and no other way."""
    invented(monkeypatch, causes=[CAUSE | {"reading": BY_THEIR_CODE}])
    row = printed("fedgcn-table2", ZERO_HOPS)
    assert row.mean is not None
    measured(tmp_path, row, row.mean + 8)
    if gap is not None:
        measured(tmp_path, row, row.mean + gap, method=row.method + BY_THEIR_CODE)
    found = of(row, tmp_path)
    assert found.verdict == verdict and (found.reason == "a reason") == (verdict == EXPLAINED)
    if verdict == MISSED and gap is not None:
        (tmp_path / row.table / "measurements.csv").unlink()
        measured(tmp_path, row, row.mean + gap, method=row.method + BY_THEIR_CODE)
        assert of(row, tmp_path).verdict == MISSED


def test_readings_of_causes_are_rows() -> None:
    known = {key_of(table, row.key) for table in TITLES for row in rows_of(table)}
    for line in (line for line in packaged("causes.csv") if line["reading"]):
        printed = [row for row in all_published() if row.table == line["table"]]
        mine = [row for row in printed if all(word in row.label for word in line["words"].split("; "))]
        again = {key_of(row.table, row.key | {"method": row.method + line["reading"]}) for row in mine}
        assert again and again <= known, line


def test_a_printed_count_of_one_partition_is_explained_between_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgt-table6", "cora, non-overlapping, 20 clients, missing-links")
    assert row.mean is not None
    measured(tmp_path, row, row.mean + 50, row.mean + 20)

    def now() -> str:
        return of(row, tmp_path).verdict

    assert now() == MISSED
    measured(tmp_path, row, row.mean + 50, row.mean + 20, row.mean - 1)
    assert now() == EXPLAINED
    of_accuracies = printed("fedgcn-table2", ZERO_HOPS)
    assert of_accuracies.mean is not None
    measured(tmp_path, of_accuracies, of_accuracies.mean + 30, of_accuracies.mean - 1)
    assert {each.verdict for each in judged(tmp_path) if each.row == of_accuracies} == {MISSED}


def test_two_tables_with_one_row_share_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    row = printed("gfl-appnp-table2", "GFL-APPNP I=10, csbm-dnc, 200 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean)
    done = [each.row.table for each in judged(tmp_path) if each.verdict == HIT]
    assert sorted(done) == ["gfl-appnp-table1", "gfl-appnp-table2"]


def test_the_default_clients_of_fedgts_table_11_are_those_of_table_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgt-table1", "FedGT, cora, non-overlapping, 10 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean)
    done = [each.row.label for each in judged(tmp_path) if each.verdict == HIT]
    assert done == [row.label, "FedGT, cora, default, 10 clients"]


def test_other_figures_are_compared_in_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    row = next(row for row in all_published() if row.table == "fedgcn-table3" and row.metric == "nodes")
    assert row.mean is not None and row.mean > 1000
    measured(tmp_path, row, row.mean * 1.014)
    assert {each.verdict for each in judged(tmp_path) if each.row == row} == {HIT}
    measured(tmp_path, row, row.mean * 1.014, row.mean * 1.018)
    assert {each.verdict for each in judged(tmp_path) if each.row == row} == {MISSED}


def test_what_cannot_be_run_says_why_as_a_measurement_does() -> None:
    barred = [each for each in judged(EMPTY) if each.verdict == BARRED]
    assert barred and all(measure(each.row, 0, "missing") == each.reason == obstacle(each.row) for each in barred)


def test_the_page_begins_with_the_answer() -> None:
    """``docs/reproduce.md`` has what the command prints from what ships; it is written anew where this fails."""
    page = (DOCS / "docs" / "reproduce.md").read_text()
    assert summary(judged(EMPTY)).strip() in page
    assert page.index("**Of ") < 900


def test_fedgts_page_has_the_runs_that_ship() -> None:
    page = fedgt_accuracy.PAGE.read_text()
    for written in (fedgt_accuracy.glance(), fedgt_accuracy.tables()):
        assert written in page, "run python -m bench.fedgt.accuracy"


def test_fedgts_page_counts_every_printed_setting_of_a_method_once() -> None:
    """Thirty settings of FedGT were run, and no method has more."""
    lines = {line.split(" | ")[0].strip("| "): line for line in fedgt_accuracy.glance().splitlines()[2:]}
    assert tuple(lines) == fedgt_accuracy.METHODS and " of 30 |" in lines["FedGT"]
    assert all(
        int(met) <= int(ran) <= 30 for line in lines.values() for met, ran in re.findall(r"(\d+) of (\d+)", line)
    )


def test_a_miss_shows_what_the_authors_code_gives_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    row = printed("fedgt-table1", "FedPer, citeseer, non-overlapping, 20 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean + 3)
    assert f"| {row.mean + 3:.5g} | +3 | 1 |  |" in status_of("", tmp_path)
    measured(tmp_path, row, row.mean - 2, method=row.method + BY_THEIR_CODE)
    assert f"| {row.mean + 3:.5g} | +3 | 1 | {row.mean - 2:.5g} |" in status_of("", tmp_path)


def test_the_command_measures_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "--status", "--out", str(tmp_path)])
    assert done.exit_code == 0 and done.stdout == status_of("", tmp_path) and not list(tmp_path.iterdir())
    one = CliRunner().invoke(app, ["reproduce", "fedgat-table1", "--status", "--out", str(tmp_path)]).stdout
    assert all(row.label in one for row in all_published() if row.table == "fedgat-table1")
    assert "prints no number" in CliRunner().invoke(app, ["reproduce", "fedgt-figure3", "--status"]).stdout
    with pytest.raises(FglauditError, match="fedgat-table1"):
        status_of("fedgat-tabel1", tmp_path)


@pytest.mark.parametrize("option", [["--only", "nobody"], ["--quick"], ["--seeds", "2"]])
def test_what_would_be_ignored_is_refused(option: list[str]) -> None:
    done = CliRunner().invoke(app, ["reproduce", "fedgat-table1", "--status", *option])
    assert done.exit_code != 0 and isinstance(done.exception, FglauditError) and option[0] in str(done.exception)


def test_an_accuracy_of_one_split_is_explained_between_enough_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgt-table1", "FedPer, citeseer, non-overlapping, 20 clients")
    assert row.mean is not None

    def now(*gaps: float, method: str = row.method) -> str:
        assert row.mean is not None
        measured(tmp_path, row, *(row.mean + gap for gap in gaps), method=method)
        return of(row, tmp_path).verdict

    assert now(-0.5, 9, 8, 7, 6) == MISSED, "five partitions are too few"
    assert now(0.5, 9, 8, 7, 6, 5) == MISSED, "all six lie above"
    assert now(-0.5, 9, 8, 7, 6, 5) == EXPLAINED
    assert now(0.5, 9, 8, 7, 6, 5) == MISSED
    assert now(-9, -8, -7, -6, -5, 0.5, method=row.method + BY_THEIR_CODE) == EXPLAINED


@pytest.mark.parametrize(
    ("ours", "parted", "verdict"),
    [(-5.0, 4.0, EXPLAINED), (-5.0, 1.4, EXPLAINED), (5.0, 2.0, MISSED), (-5.0, -2.0, MISSED), (-5.0, None, MISSED)],
)
@pytest.mark.parametrize("reading", ["", BY_THEIR_CODE])
def test_a_figure_of_gcfl_is_explained_by_the_bound_that_is_not_printed(
    ours: float, parted: float | None, verdict: str, reading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented(monkeypatch)
    row = printed("fedgt-table1", "GCFL+, cora, non-overlapping, 10 clients")
    assert row.mean is not None
    measured(tmp_path, row, row.mean + ours, method=row.method + reading)
    if parted is not None:
        measured(tmp_path, row, row.mean + parted, method=row.method + PARTED_CLUSTERS + reading)
    found = of(row, tmp_path)
    assert found.verdict == verdict and (found.page == "docs/fedgt-accuracy.md") == (verdict == EXPLAINED)


def test_one_split_explains_no_other_papers_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch)
    row = printed("fedgcn-table2", ZERO_HOPS)
    assert row.mean is not None
    measured(tmp_path, row, *(row.mean + gap for gap in (-0.5, 9, 8, 7, 6, 5, 4)))
    found = of(row, tmp_path)
    assert found.verdict == MISSED
