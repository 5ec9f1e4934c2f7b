"""``fglaudit new`` writes plugins that run, keep the rules and pass their own tests; it writes over nothing."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fglaudit import registry
from fglaudit.cli import main
from fglaudit.scaffold import KINDS


def call(*arguments: str) -> int:
    try:
        main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_is_written_and_found(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("new", kind, f"fresh-{kind}", "--folder", str(tmp_path)) == 0
    said = capsys.readouterr().out
    path = tmp_path / f"fresh_{kind}.py"
    assert f"fglaudit check {path}:Fresh{kind.capitalize()}" in said
    assert ("ends with a FAULT" in said) == (kind == "defense"), "what a newcomer takes for a mistake is said before"
    cls = registry.load(kind, f"{path}:Fresh{kind.capitalize()}")
    assert cls.name == f"fresh-{kind}" and re.search("@[A-Z]+@", path.read_text()) is None
    assert max(map(len, path.read_text().splitlines())) <= 120
    before = path.read_text()
    assert call("new", kind, f"fresh-{kind}", "--folder", str(tmp_path)) == 2
    assert "not written over" in capsys.readouterr().err and path.read_text() == before


def test_what_is_written_passes_its_own_tests(tmp_path: Path) -> None:
    for kind in KINDS:
        assert call("new", kind, f"own-{kind}", "--folder", str(tmp_path)) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["defence", "mine"], "did you mean 'defense'"),
        (["defense", "My Defense"], "small letters"),
        (["defense", "class"], "a word of Python"),
        (["defense", "none"], "a word of Python"),  # its class would be None
        (["defense", "gaussian"], "a defense that is known already; write e.g. my-gaussian"),
        (["attack", "typing"], "a module of Python"),
        (["protocol", "torch"], "a module of Python"),
        (["defense", "../up"], "small letters"),
        (["defense", "mine", "--folder", "nowhere"], "there is no nowhere"),
    ],
)
def test_wrong_names_are_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", *arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_half_way_leaves_nothing_and_says_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def full(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if Path(path).name == "test_my_noise.py":
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", full)
    assert call("new", "defense", "my-noise", "--folder", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error and error.rstrip().endswith("use another --folder")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_named_with_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Any, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    assert call("new", "attack", "my-attack", "--folder", str(tmp_path)) == 2
    assert "use another --folder" in capsys.readouterr().err
