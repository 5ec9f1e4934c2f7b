"""What README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(language: str) -> list[str]:
    """Return README's code blocks in ``language``."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "client:each subset-sum" in done.stdout


@pytest.mark.parametrize("first", ["fglaudit.record", "fglaudit.recording"])
def test_public_names_do_not_depend_on_what_is_imported_first(first: str) -> None:
    """A module of the same name would take a function's place."""
    other = {"fglaudit.record": "fglaudit.recording", "fglaudit.recording": "fglaudit.record"}[first]
    code = f"""
import fglaudit
for name in ("{first}", "{other}"):
    if name == "fglaudit.record":
        assert callable(fglaudit.record)
    else:
        import fglaudit.recording, fglaudit.attacking, fglaudit.scoring
assert all(callable(getattr(fglaudit, name)) for name in ("record", "run_attacks", "score"))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
