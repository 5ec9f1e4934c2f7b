"""``constraints-lowest.txt`` names the lower bounds of ``pyproject.toml``, each of them and no others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ("ruff", "mypy", "build", "setuptools", "import-linter", "ray", "mkdocs", "mkdocs-material")
"""They check or build the package or run it on many machines; the tests do not depend on their versions."""


def test_the_lowest_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = [
        *project["dependencies"],
        *(entry for extra in project["optional-dependencies"].values() for entry in extra),
    ]
    bounds = dict(entry.split(">=") for entry in listed if ">=" in entry)
    lines = (ROOT / "constraints-lowest.txt").read_text("utf-8").splitlines()
    pinned = dict(re.split("==", line.split("#")[0].strip()) for line in lines if "==" in line.split("#")[0])
    assert pinned.keys() == bounds.keys() - set(TOOLS)
    for name, version in bounds.items():
        if name not in TOOLS:
            assert re.fullmatch(rf"{re.escape(version)}(\.0)*", pinned[name]), name
