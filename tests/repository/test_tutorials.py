"""What the tutorials show runs as it stands, in an empty folder."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AT_ITS_END = " (at its end)"
"""After the name of a file: the block is added to it."""
MAY_END_WITH = {"tutorial-own-defense.md": {"check": (1, 3), "run": (0, 3), "report": (0, 3)}}
"""Exit codes by page and command, where not 0 alone: the defense shown is a wrong one, so its check must find a fault
(1) or refute its guarantee (3)."""


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return the fenced blocks of a page: language, file name, text."""
    return BLOCK.findall((ROOT / "docs" / page).read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tutorial-own-graph.md", "tutorial-own-defense.md", "tutorial-own-protocol.md"])
def test_a_tutorial_runs(page: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = blocks(page)
    assert any(language == "sh" for language, _, _ in found)
    for language, title, text in found:
        if title:
            name = title.removesuffix(AT_ITS_END)
            with (tmp_path / name).open("w" if name == title else "a", encoding="utf-8") as file:
                file.write(text)
            continue
        commands = [[sys.executable, "-c", text]] if language == "python" else []
        for line in text.splitlines() if language == "sh" else ():
            name, *arguments = shlex.split(line, comments=True)
            assert name == "fglaudit"
            commands.append([sys.executable, "-m", "fglaudit", *arguments])
        for command in commands:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
            allowed = MAY_END_WITH.get(page, {}).get(command[3], (0,)) if language == "sh" else (0,)
            assert done.returncode in allowed, f"{command}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr
    if page == "tutorial-own-protocol.md":
        with (tmp_path / "runs/reading/findings.csv").open(encoding="utf-8") as file:
            read = [(row["status"], row["exact_rate"]) for row in csv.DictReader(file)]
        assert read == [("ok", "1.0"), ("ok", "1.0")], "the page says that both observers read every row"
    made = list((tmp_path / "runs").glob("*/report.html"))
    assert made and all(page.stat().st_size > 1000 for page in made)
