"""What pages and docstrings name exists: files, measurements, suites, commands, tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.__main__ import MEASUREMENTS
from fglaudit.cli import app
from fglaudit.reproduce.published import TITLES

ROOT = Path(__file__).parents[2]
ROOMS = ("fglaudit", "attacks", "defenses", "protocols", "reports", "bench", "tests", "docs")
PLACE = re.compile(rf"(?<![\w/.-])((?:{'|'.join(ROOMS)})/[\w/.-]+\.(?:py|md|yaml|svg|png))(?![\w*{{<])")
MADE_UP = ("my_", "planted", "PAPER.py", "docs/x.md", "docs/examples/")
"""Names of files that a reader writes, that a test plants, or of another repository."""
NAMED = {
    "measurement": re.compile(r"python -m bench ([a-z][\w-]*)"),
    "suite": re.compile(r"(?<![a-z])fglaudit run ([a-z][\w-]*)(?![\w./])"),
    "command": re.compile(r"`(?:OMP\S+ )?fglaudit ([a-z-]+)"),
    "table": re.compile(r"fglaudit reproduce ([a-z][a-z-]*-(?:table|figure|section|tau)[\w.]*)"),
}


def pages() -> list[Path]:
    """Return everything with prose but the history, which names what was."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    rooms = ("fglaudit", "attacks", "defenses", "protocols", "reports", "bench")
    return found + [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


def named(pattern: re.Pattern[str]) -> dict[str, str]:
    """Return what the pattern finds, with a page that says it."""
    return {
        found: str(page.relative_to(ROOT)) for page in pages() for found in pattern.findall(page.read_text("utf-8"))
    }


def test_files_that_are_named_exist() -> None:
    missing = {
        place: page
        for place, page in named(PLACE).items()
        if not (ROOT / place).exists() and not any(made in place for made in MADE_UP)
    }
    assert not missing


@pytest.mark.parametrize("kind", sorted(NAMED))
def test_commands_that_are_named_exist(kind: str) -> None:
    command: Any = typer.main.get_command(app)
    known = {
        "measurement": set(MEASUREMENTS),
        "suite": {path.stem for path in (ROOT / "fglaudit/suite/embedded").glob("*.yaml")},
        "command": {*command.commands, *(option for parameter in command.params for option in parameter.opts)},
        "table": set(TITLES),
    }[kind]
    found = named(NAMED[kind])
    assert found and not {name: page for name, page in found.items() if name not in known}
