"""Runs survive whatever happens to a cell, a worker or the parent, and one folder holds one run."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
from execution_runs import run, suite
from harness_runners import KILLED, OUT_OF_MEMORY, RAISES, USER_ERROR, misbehave

from fglaudit.errors import FglauditError
from fglaudit.execution.engines.by_name import make_engine
from fglaudit.execution.folder import csv_files
from fglaudit.execution.folder.csv_files import write_findings
from fglaudit.execution.folder.run_folder import CONFIRMED
from fglaudit.execution.folder.store import open_run
from fglaudit.execution.folder.stored_record import FORMAT
from fglaudit.execution.folder.stored_run import read_cells, read_manifest, read_record, read_records
from fglaudit.files.own import stamped, unstamped
from fglaudit.finding import COLUMNS, NOT_RUN, CellRecord, Status


def rows(folder: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in ("findings.csv", "coverage.csv"):
        with (folder / name).open(newline="") as file:
            found += csv.DictReader(file)
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in found]


def test_a_failing_cell_costs_no_other_and_keeps_its_reason(tmp_path: Path) -> None:
    what = suite(seeds=[0, RAISES, OUT_OF_MEMORY, KILLED, USER_ERROR, 6])
    records, log = run(what, tmp_path, misbehave, jobs=2)
    by_seed = {record.findings[0].seed: record for record in records}
    assert list(by_seed) == [0, RAISES, OUT_OF_MEMORY, KILLED, USER_ERROR, 6]
    for seed, words in {
        RAISES: "ValueError: the loss is not finite",
        OUT_OF_MEMORY: "out of memory",
        KILLED: "killed by SIGKILL",
        USER_ERROR: "client 3 has no nodes; raise beta",
    }.items():
        found = by_seed[seed].findings
        assert len(found) == len(what.observers) * len(what.cells()[0].attacks)
        assert all(row.status is Status.FAILED and words in row.reason for row in found)
        assert words in log
    assert all(row.status is Status.OK for seed in (0, 6) for row in by_seed[seed].findings)
    assert [int(row["seed"]) for row in rows(tmp_path)] == [r.seed for record in records for r in record.findings]


def test_resume_skips_finished_cells_and_retries_failed_ones(tmp_path: Path) -> None:
    what = suite(seeds=[0, RAISES, 6])
    run(what, tmp_path, misbehave)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    records, log = run(what, tmp_path)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert "2 of 3 cells are finished already" in log
    assert [name for name in after if after[name] != before[name]] == [f"{records[1].cell}.json"]
    assert all(row.status is Status.OK for record in records for row in record.findings)


def test_two_runs_give_equal_files_whatever_the_number_of_jobs(tmp_path: Path) -> None:
    run(suite(), tmp_path / "a", jobs=1)
    run(suite(), tmp_path / "b", jobs=2)
    run(suite(), tmp_path / "c")
    assert rows(tmp_path / "a") == rows(tmp_path / "b") == rows(tmp_path / "c") != []


@pytest.mark.parametrize("damage", ["", '{"cell": ', "[]", '{"cell": "other", "findings": []}', "\x00\x01"])
def test_a_damaged_record_is_set_aside_and_computed_again(tmp_path: Path, damage: str) -> None:
    records, _ = run(suite(), tmp_path)
    expected = rows(tmp_path)
    path = tmp_path / "cells" / f"{records[0].cell}.json"
    path.write_text(damage)
    write_findings(tmp_path)
    assert {row["status"] for row in rows(tmp_path) if row["cell"] == records[0].cell} == {"failed"}
    _, log = run(suite(), tmp_path)
    assert str(path) in log and "set aside" in log
    assert path.with_suffix(".json.corrupt").read_text() == damage
    assert rows(tmp_path) == expected


def test_records_of_another_version_are_told_in_one_note(tmp_path: Path) -> None:
    """There was a line for each, four times as wide as a terminal, that said to run the suite again, in a run of it."""
    records, _ = run(suite(), tmp_path)
    for record in records:
        path = tmp_path / "cells" / f"{record.cell}.json"
        path.write_text(stamped({**unstamped(path.read_bytes(), path.name), "format": FORMAT + 1}, path.name))
    (note,) = [line for line in run(suite(), tmp_path)[1].splitlines() if "set aside" in line]
    first = tmp_path / "cells" / f"{records[0].cell}.json"
    told = f"its format is {FORMAT + 1}, this version reads {FORMAT}"
    many = f"{first} and {len(records) - 1} more cannot be used (written by another version of fglaudit: {told}); set"
    assert note.startswith(f"note: {many} aside as")
    assert note.endswith(f"{len(records)} cells run again") and "run the suite" not in note


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    run(suite(), tmp_path)
    with pytest.raises(FglauditError, match=r"seeds differ.*another --out"):
        run(suite(seeds=[0]), tmp_path)
    with pytest.raises(FglauditError, match=r"protocols differ.*another --out"):
        run(suite(protocols=["fedgcn"]), tmp_path)
    manifest = unstamped((tmp_path / "run.json").read_bytes(), "run.json")
    (tmp_path / "run.json").write_text(stamped({**manifest, "version": "0.0.1"}, "run.json"))
    with pytest.raises(FglauditError, match=r"fglaudit 0\.0\.1"):
        run(suite(), tmp_path)
    data = dict.fromkeys(manifest["data"], "0")
    (tmp_path / "run.json").write_text(stamped({**manifest, "data": data}, "run.json"))
    with pytest.raises(FglauditError, match=r"other content of datasets\[0\] csbm"):
        run(suite(), tmp_path)


def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path) -> None:
    run(suite(seeds=[0]), tmp_path / "grown")
    before = {path: path.read_bytes() for path in (tmp_path / "grown" / "cells").iterdir()}
    run(suite(seeds=[2, 0, 1]), tmp_path / "grown")
    assert all(path.read_bytes() == text for path, text in before.items()), "what was computed is not computed again"
    run(suite(seeds=[2, 0, 1]), tmp_path / "whole")
    assert rows(tmp_path / "grown") == rows(tmp_path / "whole") != []
    assert read_manifest(tmp_path / "grown").plan == read_manifest(tmp_path / "whole").plan
    with pytest.raises(FglauditError, match=r"seeds differ"):
        run(suite(seeds=[0, 1]), tmp_path / "grown")
    with pytest.raises(FglauditError, match=r"observers differ"):
        run(suite(seeds=[0, 1, 2, 3], observers=[{"parties": ["server"], "topology": True}]), tmp_path / "grown")


def test_no_seeds_are_added_where_settings_were_confirmed_on_fresh_ones(tmp_path: Path) -> None:
    run(suite(seeds=[0]), tmp_path)
    (tmp_path / CONFIRMED).mkdir()
    with pytest.raises(FglauditError, match=r"seeds differ"):
        run(suite(seeds=[0, 1]), tmp_path)


def test_a_folder_in_use_or_not_ours_is_refused(tmp_path: Path) -> None:
    what = suite()
    with open_run(tmp_path / "a", what, what.cells()), pytest.raises(FglauditError, match="in use by another run"):
        run(what, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(FglauditError, match=r"holds thesis\.tex; use another --out"):
        run(what, tmp_path / "b")
    with pytest.raises(FglauditError, match="is a file"):
        run(what, tmp_path / "b" / "thesis.tex")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.tex"]


def test_cells_that_were_not_run_are_rows_too(tmp_path: Path) -> None:
    what = suite()
    with open_run(tmp_path, what, what.cells()):
        pass
    write_findings(tmp_path)
    found = rows(tmp_path)
    assert len(found) == len(what.cells()) * len(what.observers) * len(what.cells()[0].attacks)
    assert {(row["status"], row["reason"]) for row in found} == {("failed", NOT_RUN)}


def test_findings_have_the_contracts_columns_and_full_precision(tmp_path: Path) -> None:
    records, _ = run(suite(), tmp_path)
    with (tmp_path / "findings.csv").open(newline="") as file:
        header, *body = csv.reader(file)
    assert tuple(header) == COLUMNS
    assert float(body[0][header.index("value")]) == records[0].findings[0].value
    assert body[0][header.index("f1")] == ""
    assert all(math.isfinite(float(line[header.index("accuracy")])) for line in body)


def test_findings_and_coverage_hold_every_row_once(tmp_path: Path) -> None:
    what = suite(seeds=[0, 1])
    records, _ = run(what, tmp_path)
    first, second = records
    idle = replace(second.findings[0], status=Status.NOT_APPLICABLE, reason="no sums")
    changed = [first, replace(second, findings=(idle, *second.findings[1:]))]
    write_findings(tmp_path, changed)
    keys = {}
    for name in ("findings.csv", "coverage.csv"):
        with (tmp_path / name).open(newline="") as file:
            header, *body = csv.reader(file)
        assert tuple(header) == COLUMNS
        where = [header.index(c) for c in ("cell", "observer", "observer_knowledge", "attack", "status")]
        keys[name] = [tuple(line[i] for i in where) for line in body]
    assert [key[-1] for key in keys["coverage.csv"]] == ["not-applicable"]
    assert "not-applicable" not in {key[-1] for key in keys["findings.csv"]}
    every = [(f.cell, f.observer, f.observer_knowledge, f.attack, f.status.value) for r in changed for f in r.findings]
    assert sorted(keys["findings.csv"] + keys["coverage.csv"]) == sorted(every)
    assert len(every) == len(what.cells()) * len(what.observers) * len(what.cells()[0].attacks)


def test_a_record_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = suite()
    record = run(what, tmp_path / "a")[0][0]
    with open_run(tmp_path / "b", what, what.cells()) as store:
        store.write(record)
        path = store.record_path(record.cell)
        assert read_record(path) == record

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(FglauditError, match="No space left"):
            store.write(record)
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        assert read_record(path) == record


def test_engines(tmp_path: Path) -> None:
    with pytest.raises(FglauditError, match="did you mean 'local'"):
        make_engine("locl", 1)
    with pytest.raises(FglauditError, match="--jobs must be 1 or more"):
        make_engine("local", 0)
    with pytest.raises(FglauditError, match=r"there is no run\.json|run\.json; there is none"):
        read_records(tmp_path)


def test_findings_grow_while_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is finished stands in findings.csv, whole, before the next one is; the end puts it in suite order."""
    monkeypatch.setattr(csv_files, "LEAST_SECONDS", 0.0)
    seen: list[list[str]] = []

    class Watched(csv_files.GrowingFindings):
        def add(self, record: CellRecord) -> None:
            self._again = 0.0
            super().add(record)
            with (tmp_path / "findings.csv").open(newline="") as file:
                found = list(csv.DictReader(file))
            assert [row["attack"] for row in found if row["cell"] == record.cell] == [
                row.attack for row in record.findings if row.status is not Status.NOT_APPLICABLE
            ]
            seen.append(list(dict.fromkeys(row["cell"] for row in found)))

    monkeypatch.setattr("fglaudit.run.GrowingFindings", Watched)
    run(suite(seeds=[0, 6, RAISES]), tmp_path, misbehave)
    assert [len(cells) for cells in seen] == [1, 2, 3]
    seen.clear()
    records, _ = run(suite(seeds=[0, 6, RAISES]), tmp_path)
    assert [len(cells) for cells in seen] == [3]  # two from before and the one that had failed
    assert list(dict.fromkeys(row["cell"] for row in rows(tmp_path))) == [record.cell for record in records]


def test_growing_findings_are_not_written_all_the_time(tmp_path: Path) -> None:
    records, _ = run(suite(seeds=[0, 1]), tmp_path)
    table = csv_files.GrowingFindings(tmp_path / "other", records[:1])
    (tmp_path / "other").mkdir()
    table.write()
    first = (tmp_path / "other" / "findings.csv").read_bytes()
    table.add(records[1])
    assert (tmp_path / "other" / "findings.csv").read_bytes() == first
    table._again = 0.0
    table.write()
    assert (tmp_path / "other" / "findings.csv").read_bytes() == (tmp_path / "findings.csv").read_bytes()


def test_a_report_says_in_few_words_why_records_cannot_be_read(tmp_path: Path) -> None:
    """Their path stood there twice, with what to do about each of them."""
    records, _ = run(suite(), tmp_path)
    path = tmp_path / "cells" / f"{records[0].cell}.json"
    path.write_text(stamped({**unstamped(path.read_bytes(), path.name), "format": FORMAT + 1}, path.name))
    stored = read_cells(tmp_path, read_manifest(tmp_path))
    words = f"written by another version of fglaudit: its format is {FORMAT + 1}, this version reads {FORMAT}"
    assert stored.damaged == {records[0].cell: words}
    path.write_text("{}")
    (why,) = read_cells(tmp_path, read_manifest(tmp_path)).damaged.values()
    assert why.startswith("damaged: ") and str(path) not in why
