"""The map of the layers holds: what `.importlinter` says is true of the code, and a file in the wrong layer is
noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("importlinter", reason="import-linter is not installed (pip install -e '.[dev]')")


MAP = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("| layer | room | holds |")[1].split("\n\n")[0]
CONTRACT = (ROOT / ".importlinter").read_text("utf-8").split("layers =\n")[1].split("exhaustive")[0]


def mapped() -> dict[str, int]:
    """Return the layer of every module and room on the map in CONTRIBUTING, counted from the bottom."""
    layers: dict[str, int] = {}
    layer = 0
    for line in MAP.splitlines():
        if not line.startswith("|") or line.startswith("|-"):
            continue
        number, rooms = (cell.strip() for cell in line.split("|")[1:3])
        layer = int(number or layer)
        for place in re.findall(r"`([^`]+)`", rooms):
            names = place.removeprefix("fglaudit/").removesuffix("/").removesuffix(".py").strip("{}")
            layers |= dict.fromkeys(names.split(","), layer)
    return layers


def test_every_module_and_room_is_on_the_map() -> None:
    inside = [path for path in (ROOT / "fglaudit").iterdir() if not path.name.startswith((".", "__pycache__"))]
    there = {path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"}
    assert set(mapped()) == there


def test_the_map_has_the_layers_of_the_contract() -> None:
    """Several layers of the contract may be one of the map, in no other order."""
    rows = [re.split(r"[:|]", line) for line in reversed(CONTRACT.strip().splitlines())]
    height = {name.strip(): place for place, names in enumerate(rows) for name in names}
    found = mapped()
    assert set(height) == set(found)
    for name, place in height.items():
        wrong = [other for other, above in height.items() if above > place and found[other] < found[name]]
        assert not wrong, f"the map has {', '.join(wrong)} below {name}, .importlinter above"
    apart = {place: {found[name] for name in height if height[name] == place} for place in set(height.values())}
    assert all(len(layers) == 1 for layers in apart.values()), apart


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the package in which the links are folders."""
    ignored = shutil.ignore_patterns("__pycache__", "*.yaml", "templates")
    shutil.copytree(ROOT / "fglaudit", tmp_path / "fglaudit", symlinks=False, ignore=ignored)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_the_contracts_hold(house: Path) -> None:
    done = lint(house)
    assert done.returncode == 0, done.stdout
    assert "Contracts: 4 kept, 0 broken." in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("attacks/sums/planted.py", "from fglaudit.attacks.latents import planting", "attack families are independent"),
        ("attacks/sums/planted.py", "from fglaudit.protocols.fedgcn import fedgcn", "layers"),
        ("defenses/noise/planted.py", "from fglaudit.attacks.sums import subset_sum", "layers"),
        ("nn/planted.py", "from fglaudit.federated import fedavg", "layers"),
        ("scoring/planted.py", "from fglaudit.execution import store", "layers"),
        ("wire/planted.py", "from fglaudit.scoring import game", "layers"),
        ("empirical/estimates/planted.py", "from fglaudit.empirical.audits import attempts", "guarantees"),
        ("new_room/__init__.py", "", "layers"),
    ],
)
def test_a_planted_violation_is_noticed(house: Path, file: str, line: str, broken: str) -> None:
    path = house / "fglaudit" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line + "\n")
    done = lint(house)
    assert done.returncode != 0
    assert any(text.startswith(broken) and text.endswith("BROKEN") for text in done.stdout.splitlines()) or (
        "new_room" in done.stdout + done.stderr
    ), done.stdout


def test_a_circle_inside_a_layer_is_noticed(house: Path) -> None:
    for one, other in (("first", "second"), ("second", "first")):
        (house / "fglaudit" / "scoring" / f"planted_{one}.py").write_text(f"import fglaudit.scoring.planted_{other}\n")
    done = lint(house)
    assert done.returncode != 0
    assert "no circles between modules of one folder BROKEN" in done.stdout


def test_nothing_was_left_at_the_top() -> None:
    """A command that was tried out at the root leaves its output there, where a commit takes it along."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a clone with git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept = {line for line in listed.splitlines() if "/" not in line and not line.startswith(".")}
    known = {
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "mkdocs.yml",
        "pyproject.toml",
    }
    assert kept <= known | {"constraints.txt", "constraints-lowest.txt"}
