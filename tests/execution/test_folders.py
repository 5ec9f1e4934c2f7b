"""Folders of runs: nothing foreign is touched, no link is followed, nothing readable is left lying."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from execution_runs import run, suite
from harness_runners import measure
from rich.console import Console

from fglaudit.errors import FglauditError
from fglaudit.execution.engines.worker import Task, compute
from fglaudit.execution.folder.kept import KEY_FILE, remove_kept, secret_key
from fglaudit.execution.folder.run_folder import check_ours, run_folder
from fglaudit.files.own import make_folder, write_atomic, write_new
from fglaudit.run import run_suite


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", ["findings.csv", "report.html", "suite.yaml", "cells/notes.json", "run.json"])
def test_a_folder_with_somebody_elses_file_of_our_name_is_refused_untouched(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(FglauditError, match="must be new, empty or a run"):
        run(suite(), tmp_path / "out")
    assert tree(tmp_path / "out") == {name: b"{}"}


def test_foreign_files_in_a_run_survive_it(tmp_path: Path) -> None:
    run(suite(), tmp_path)
    foreign = {
        ".notes.tmp": b"1", "notes.txt": b"2", "cells/notes.json": b"3", "cells/.x.json.1.tmp": b"4", "truth/a": b"5",
    }  # fmt: skip
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    records, _ = run(suite(), tmp_path)
    assert all(row.status.value == "ok" for record in records for row in record.findings)
    assert {name: content for name, content in tree(tmp_path).items() if name in foreign} == foreign


def test_links_are_replaced_or_refused_and_never_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    out = tmp_path / "out"
    run(suite(), out)
    for name in ("findings.csv", "run.json", "report.md"):
        (out / name).unlink()
        (out / name).symlink_to(target)
    run(suite(), out)
    assert target.read_text() == "mine" and not (out / "findings.csv").is_symlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (out / "cells").rename(out / "old")
    (out / "cells").symlink_to(elsewhere)
    with pytest.raises(FglauditError, match="is a link or a file"):
        run(suite(), out)
    assert list(elsewhere.iterdir()) == []


def test_a_link_placed_while_the_run_writes_is_not_followed(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "cells"
    victim.mkdir()
    folder.symlink_to(victim)
    with pytest.raises(FglauditError, match=r"a link lies in its place|Not a directory"):
        write_atomic(folder / "x.json", "text", linked=False)
    with pytest.raises(FglauditError, match="link or a file"):
        make_folder(folder)
    (tmp_path / "blob").symlink_to(tmp_path / "created")
    with pytest.raises(FglauditError, match="writing"):
        write_new(tmp_path / "blob", b"secret")
    assert not (tmp_path / "created").exists() and list(victim.iterdir()) == []
    with pytest.raises(FglauditError, match="never written over a folder"):
        write_atomic(victim, "text")


def test_unusable_paths_are_messages(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for path in (tmp_path / ("x" * 5000), tmp_path / "file" / "run", tmp_path / "nowhere", Path("a\0b")):
        with pytest.raises(FglauditError, match="; "):
            run(suite(), path)
    assert run_folder(tmp_path / "new" / "deeper") == tmp_path / "new" / "deeper"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_message(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FglauditError, match="must be writable"):
        run(suite(), tmp_path / "out")


def test_a_full_disk_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FglauditError, match=r"No space left on device \(make room"):
        write_atomic(tmp_path / "x", "text")
    assert list(tmp_path.iterdir()) == []


def test_names_with_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    what = suite()
    run(what, tmp_path / "[red]out[/blue]")
    _, log = run(what, tmp_path / "[red]out[/blue]")
    assert "finished already in" in log and "[red]out[/blue]" in log.replace("\n", "")


def spool_left(**given: Any) -> Any:
    folder: Path = given["spool_dir"]
    folder.mkdir(parents=True)
    (folder / "messages").write_text("readable")
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    raise RuntimeError("killed")


def test_a_cell_that_fails_leaves_no_messages(tmp_path: Path) -> None:
    (cell,) = suite(seeds=[0]).cells()
    make_folder(tmp_path / ".spool", 0o700)
    task = Task(cell, "small", "cpu", spool=tmp_path / ".spool" / "x")
    compute(task, lambda cell, **given: spool_left(**given), lambda progress: None)
    assert list((tmp_path / ".spool").iterdir()) == []


def test_messages_of_a_killed_run_are_removed_on_resume_and_the_spool_at_the_end(tmp_path: Path) -> None:
    run(suite(), tmp_path)
    (tmp_path / ".spool" / "0").mkdir(parents=True)
    (tmp_path / ".spool" / "0" / "messages").write_text("readable")
    run(suite(), tmp_path)
    assert not (tmp_path / ".spool").exists()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / ".spool").symlink_to(outside)
    run(suite(), tmp_path)
    assert (outside / "precious").exists() and not (tmp_path / ".spool").is_symlink()


def test_only_our_files_of_an_older_attempt_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "opened").mkdir(parents=True)
    for name in ("messages-00000.safetensors", "side.json", "opened/messages-00001.safetensors", "thesis.tex"):
        (kept / name).touch()
    remove_kept(kept)
    assert tree(tmp_path) == {"kept/thesis.tex": b""} and not (kept / "opened").exists()
    (tmp_path / "link").symlink_to(kept)
    (kept / "side.json").touch()
    remove_kept(tmp_path / "link")
    assert (kept / "side.json").exists()


def test_a_secret_run_keeps_its_key_to_itself(tmp_path: Path) -> None:
    keys = []

    def runner(cell: Any, **given: Any) -> Any:
        keys.append(given["key"])
        return measure(cell, **given)

    from execution_runs import InlineEngine

    def go() -> None:
        with patch("fglaudit.run.run_cell", runner):
            run_suite(suite(), tmp_path, InlineEngine(), "cpu", Console(quiet=True), secret=True)

    go()
    path = tmp_path / KEY_FILE
    key = bytes.fromhex(path.read_text())
    assert keys == [key] * 2 and len(key) == 16 and stat.S_IMODE(path.stat().st_mode) == 0o600
    for file in tmp_path.rglob("*"):
        assert file == path or not file.is_file() or key.hex().encode() not in file.read_bytes()
    for record in (tmp_path / "cells").iterdir():
        record.unlink()
    keys.clear()
    go()
    assert keys == [key] * 2
    with pytest.raises(FglauditError, match="another one"):
        run(suite(), tmp_path)
    path.chmod(0o644)
    with pytest.raises(FglauditError, match="others may read"):
        go()
    path.unlink()
    with pytest.raises(FglauditError, match="needs the key that it began with"):
        go()


def test_a_key_is_never_made_up(tmp_path: Path) -> None:
    key = secret_key(tmp_path, started=False)
    assert secret_key(tmp_path, started=True) == key != secret_key(make(tmp_path / "other"), started=False)
    (tmp_path / KEY_FILE).write_text("0" * 31)
    with pytest.raises(FglauditError, match="32 hex digits"):
        secret_key(tmp_path, started=True)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_an_empty_folder_and_a_run_killed_at_once_are_ours(tmp_path: Path) -> None:
    check_ours(tmp_path)
    for name in ("cells", "transcripts"):
        (tmp_path / name).mkdir()
    (tmp_path / ".lock").touch()
    check_ours(tmp_path)
