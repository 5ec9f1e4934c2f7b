"""What README and the pages beside it show runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fglaudit.cli import app

ROOT = Path(__file__).parents[2]
OWN_DEFENSE = "docs/tutorial-own-defense.md"


def blocks(language: str, file: str) -> list[str]:
    """Return the code blocks of a page in ``language``."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / file).read_text("utf-8"), re.DOTALL)


def printed(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_steps_in_python_run() -> None:
    (code,) = blocks("python", "docs/use.md")
    assert "client:each subset-sum" in printed(code, ROOT)


SMALL = '{"x": x, "y": y, "edge_index": edges}'
GRAPH = """
import torch
torch.manual_seed(0)
y = torch.arange(120) % 3
x = (torch.rand(120, 60) < 0.05 + 0.25 * (torch.arange(60) % 3 == y[:, None])).float()
edges = torch.randint(120, (2, 300))
"""


def test_the_defense_from_python_is_complete_and_is_audited(tmp_path: Path) -> None:
    """On a smaller graph than the page's, which `test_the_defense_from_python_as_it_stands` takes."""
    (code,) = blocks("python", OWN_DEFENSE)
    said = printed(GRAPH + code.replace('"csbm-cora"', SMALL).replace('"rounds": 30', '"rounds": 2'), tmp_path)
    assert "maximum-a-posteriori" in said and "client:0" in said
    adapted = {line.split()[-1] for line in said.splitlines() if "maximum-a-posteriori" in line}
    assert adapted == {"yes"}, "the stated fact explains what the channel saw"


@pytest.mark.slow
def test_the_defense_from_python_as_it_stands(tmp_path: Path) -> None:
    (code,) = blocks("python", OWN_DEFENSE)
    assert "maximum-a-posteriori" in printed(code, tmp_path)


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 80
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
            assert "://" in link or (page.parent / link).exists(), (page.name, link)


def test_the_commands_in_the_readme_exist() -> None:
    """Every command that a page names is one that the command line has."""
    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    known |= {str(group.name) for group in app.registered_groups}
    for page in ("README.md", "docs/use.md", "docs/gate.md"):
        code = "\n".join(re.findall(r"```(?:yaml)?\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL))
        used = set(re.findall(r"^(?:- run: )?fglaudit ([\w-]+)", code, re.MULTILINE))
        assert used and used <= known, used - known


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
