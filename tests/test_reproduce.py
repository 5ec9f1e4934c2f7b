"""``fglaudit reproduce``: the papers' tables, ours beside theirs."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from fglaudit import registry
from fglaudit.cli import app
from fglaudit.errors import FglauditError
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.reproduce import data_tables, gfl_appnp, run
from fglaudit.reproduce.figures import measure, seeds_of, table_rows
from fglaudit.reproduce.output import COLUMNS, as_csv, markdown, write
from fglaudit.reproduce.published import TITLES, Published, all_published, rows_of
from fglaudit.reproduce.run import reproduce
from fglaudit.reproduce.trainings import Measured

TARGETS = Path(__file__).parents[2] / "shared" / "targets" / "paper_results.csv"


def test_every_table_has_a_title_and_every_title_a_table() -> None:
    assert {row.table for row in all_published()} == set(TITLES)


@pytest.mark.skipif(not TARGETS.is_file(), reason="the papers' figures as read from their text are not here")
def test_no_printed_figure_was_mistyped() -> None:
    with TARGETS.open(newline="") as file:
        printed = [row for row in csv.DictReader(file) if row["metric"] not in ("he-scheme", "he-security-level")]
    printed = [row for row in printed if row["metric"] != "accuracy-average"]
    ours = all_published()
    assert [float(row["mean"]) for row in printed] == [row.mean for row in ours]
    assert [row["method"] for row in printed] == [row.method for row in ours]


class ReachedError(Exception):
    """A row got as far as its training."""


def test_every_row_names_a_training_or_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise ReachedError

    for module in ("fedgcn", "fedgat", "fedgt", "nfedgnn", "gfl_appnp"):
        monkeypatch.setattr(f"fglaudit.reproduce.{module}.trained", stop)
    monkeypatch.setattr("fglaudit.reproduce.fedgcn._as_published", stop)
    monkeypatch.setattr("fglaudit.reproduce.nfedgnn._validated", stop)
    trained, reasons = 0, set()
    for table in TITLES:
        for row in table_rows(table):
            if row.metric in data_tables.COUNTS or row.metric in (
                "label-rate",
                *data_tables.PARTITIONS,
            ):
                continue
            try:
                found = measure(row, 0, "missing")
            except ReachedError:
                trained += 1
                continue
            assert isinstance(found, str) and len(found) > 10
            reasons.add(found)
    assert trained > 250 and reasons
    assert not any("Error" in reason for reason in reasons)


def test_protocols_of_rows_are_known() -> None:
    row = next(row for row in rows_of("gfl-appnp-table2") if row.method == "GFL-APPNP-V2 I=10")
    protocol = gfl_appnp.protocol(row)
    assert type(protocol).name in registry.names("protocol")
    assert isinstance(protocol, GFLAPPNP) and protocol.variant == "v2" and protocol.num_rounds == 300


def invented(row: Published, seed: int, root: str | None) -> Measured | str:
    return "not built" if row.method == "FedSage+" else Measured(row.mean + seed, 1.5, 0.25, 0.5)


def test_a_stopped_table_goes_on_and_files_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def counted(row: Published, seed: int, root: str | None) -> Measured | str:
        asked.append((row.label, seed))
        if len(asked) == 12:
            raise KeyboardInterrupt
        return invented(row, seed, root)

    monkeypatch.setattr(run, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("fedgcn-table2", tmp_path, quick=True)
    first = [key for key in asked[:-1] if not key[0].startswith("FedSage+")]
    monkeypatch.setattr(run, "measure", invented)
    rows = reproduce("fedgcn-table2", tmp_path, quick=True, seeds=1)
    stored = (tmp_path / "measurements.csv").read_text().splitlines()
    assert len(stored) == len(set(stored)) and len(stored) - 1 == sum(len(row.values) for row in rows)
    assert len(first) >= 8
    done = [row for row in rows if row.values]
    assert all(row.gap == 0 and row.gigabytes == 0.75 for row in done)
    assert {row.row.method for row in rows if not row.values} == {"FedSage+"}
    paths = write("fedgcn-table2", rows, tmp_path)
    with paths[1].open(newline="") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == COLUMNS and len(table) == len(rows)
    assert [float(line["ours"]) for line in table if line["ours"]] == [row.mean for row in done]
    text = markdown("fedgcn-table2", rows)
    assert "not built: FedSage+, cora" in text and text.count("\n| ") == len(done) + 1
    ElementTree.parse(paths[2])
    assert paths[2].read_text().count('fill="#1d4ed8"') == len(done) + 1


def test_gaps_are_given_in_points_and_in_deviations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "measure", invented)
    (row,) = reproduce("fedgcn-table2", tmp_path, only="FedGCN(2-hop), cora, beta=1,", seeds=3)
    assert row.values == tuple(row.row.mean + seed for seed in range(3))
    assert row.gap == pytest.approx(1.0) and row.spread == pytest.approx(1.0) and row.deviations == pytest.approx(1.0)
    assert "+1.00" in markdown("fedgcn-table2", [row]) and "1.0" in as_csv([row])


@pytest.mark.parametrize(
    ("arguments", "told"), [(["fedgcn-tabel2"], "fedgcn-table2"), (["fedgcn-table2", "--only", "sage++"], "sage++")]
)
def test_wrong_names_are_refused(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert isinstance(done.exception, FglauditError) and told in str(done.exception)


def test_without_a_table_all_are_listed() -> None:
    listed = CliRunner().invoke(app, ["reproduce"]).stdout
    assert all(re.search(rf"^{re.escape(name)} ", listed, re.MULTILINE) for name in TITLES)


def test_seeds_that_were_used_to_choose_settings_are_not_used() -> None:
    assert list(seeds_of(rows_of("fedgt-table1")[0])) == [2, 3, 4]
