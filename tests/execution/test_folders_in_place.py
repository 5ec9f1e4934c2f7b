"""A folder in the place of any file of a run: the next run ends in one message or in all its cells, and leaves no
messages lying."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from execution_runs import run, suite

from fglaudit.errors import FglauditError
from fglaudit.finding import Status


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "run"
    run(suite(seeds=[0], attacks=["row-space"]), folder)
    return folder


def test_a_folder_in_place_of_a_file(sound: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file() and path.name != ".lock")
    assert {"suite.yaml", "run.json", "findings.csv", "report.html"} <= {str(name) for name in names}
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(sound, folder)
        (folder / name).unlink()
        (folder / name).mkdir()
        (folder / name / "kept.txt").write_text("a user's own")
        with contextlib.suppress(FglauditError):
            records, _ = run(suite(seeds=[0], attacks=["row-space"]), folder)
            assert all(row.status is not Status.FAILED for record in records for row in record.findings)
        assert not (folder / ".spool").exists(), name
        assert [path.read_text() for path in folder.rglob("kept.txt")] == ["a user's own"], name
