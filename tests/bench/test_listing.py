"""``python -m bench`` says what there is and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import __main__ as command
from bench.listing import FOLDER, own_commands


def test_without_a_name_everything_is_listed_and_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []
    monkeypatch.setattr("sys.argv", ["bench"])
    table = {
        name: (module, lambda _, name=name: ran.append(name)) for name, (module, _) in command.MEASUREMENTS.items()
    }
    monkeypatch.setattr(command, "MEASUREMENTS", table)
    command.main()
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  "))
    assert lines.keys() == {*command.MEASUREMENTS, *own_commands()} and not ran
    assert len(lines["links"]) > 20
    monkeypatch.setattr("sys.argv", ["bench", "all"])
    command.main()
    assert ran == list(command.MEASUREMENTS)


def test_commands_of_their_own_are_found() -> None:
    found = own_commands()
    assert found["fedgt.authors"] == FOLDER / "fedgt/authors.py" and found["fuzz"] == FOLDER / "fuzz/__main__.py"


def test_every_measurement_can_be_run_by_a_name() -> None:
    """A file with a function ``run`` is in the table, or is a command or a part of one; or nobody finds it."""
    listed = {Path(str(module.__file__)) for module, _ in command.MEASUREMENTS.values()} | {*own_commands().values()}
    parts = {path.parent for path in FOLDER.rglob("*/__main__.py")}
    measuring = [path for path in FOLDER.rglob("*.py") if "\ndef run(" in path.read_text("utf-8")]
    assert len(measuring) > 30
    assert {path for path in measuring if path.parent not in parts} <= listed
