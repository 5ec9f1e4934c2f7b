"""Folders of runs that another version wrote: nothing is called damaged, nothing is written over, and it says why."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from execution_runs import run, suite

from fglaudit.errors import FglauditError
from fglaudit.execution.folder.growing import check_goes_on
from fglaudit.execution.folder.stored_record import FORMAT, OtherVersionError, parse_record
from fglaudit.files.own import stamped, unstamped
from fglaudit.reports.compare import compare_folders
from fglaudit.reports.formats.comparison import comparison_text
from fglaudit.run import write_outputs


def rewrite(path: Path) -> None:
    """Store the record without a column that this version writes, whole."""
    data = unstamped(path.read_bytes(), path.name)
    for row in data["findings"]:
        del row["adapted"]
    path.write_text(stamped(data, path.name))


def test_a_record_of_another_version_is_not_damaged_and_its_tables_stay(tmp_path: Path) -> None:
    run(suite(seeds=[0, 1]), tmp_path / "old")
    run(suite(seeds=[0, 1]), tmp_path / "new")
    first, second = sorted((tmp_path / "old" / "cells").glob("*.json"))
    rewrite(first)
    write_outputs(tmp_path / "old")  # one of two can be read
    table = tmp_path / "old" / "findings.csv"
    before = table.read_text()
    assert "another version of fglaudit" in before and "damaged" not in before
    rewrite(second)
    with pytest.raises(FglauditError, match=r"of 2 cells .* none can be: .*other columns of a finding: adapted"):
        write_outputs(tmp_path / "old")
    assert table.read_text() == before
    assert "cannot be read in" in comparison_text(compare_folders(tmp_path / "old", tmp_path / "new"))


def test_a_record_of_another_format_is_another_versions(tmp_path: Path) -> None:
    run(suite(seeds=[0]), tmp_path)
    [path] = (tmp_path / "cells").glob("*.json")
    data = unstamped(path.read_bytes(), path.name)
    parse_record(stamped(data, path.name).encode(), path.stem)
    for other in ({**data, "format": FORMAT + 1}, {key: value for key, value in data.items() if key != "format"}):
        with pytest.raises(OtherVersionError, match=f"this version reads {FORMAT}"):
            parse_record(stamped(other, path.name).encode(), path.stem)


def test_a_cut_record_is_damaged_still(tmp_path: Path) -> None:
    run(suite(seeds=[0]), tmp_path)
    [path] = (tmp_path / "cells").glob("*.json")
    with pytest.raises(ValueError, match="digest is that of another content"):
        parse_record(path.read_bytes()[:-40], path.stem)


def test_other_defaults_are_another_version_not_another_suite(tmp_path: Path) -> None:
    what = suite(seeds=[0])
    run(what, tmp_path)
    [cell] = [cell.hash() for cell in what.cells()]
    planned = tmp_path / "run.json"
    older = {**unstamped(planned.read_bytes(), planned.name)}
    older["cells"][0][0] = "0" * 16  # of other attacks
    planned.write_text(stamped(older, planned.name))
    stored = tmp_path / "suite.yaml"
    whole = stored.read_text()
    without = {
        key: value for key, value in yaml.safe_load(whole).items() if key != "empirical"
    }  # a key that came later
    for text in (whole, yaml.safe_dump(without)):
        stored.write_text(text)
        with pytest.raises(FglauditError, match="another version of fglaudit wrote it"):
            check_goes_on(tmp_path, what, [cell], sharded=False)
