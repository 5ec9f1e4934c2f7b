"""Hostile defenses through the whole command: the word that a user reads of them in findings.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fglaudit.cli import main

FOLDER = Path(__file__).parents[2] / "bench" / "redteam"
KINDS = ["honest", "seeded-by-values", "first-session", "said-memoised"]
"""The first one is none."""


def run(suite: str, folder: Path) -> dict[str, Any]:
    """Run ``suite`` by the command and return its findings.json."""
    path, out = folder / "suite.yaml", folder / "out"
    path.write_text(suite)
    options = ["--trust-plugins", "--quick", "--quiet", "--jobs", "1", "--device", "cpu", "--out", str(out)]
    with pytest.raises(SystemExit) as done:
        main(["run", str(path), *options])
    assert not done.value.code
    written: dict[str, Any] = json.loads((out / "findings.json").read_text())
    return written


def test_no_hostile_defense_is_called_held_and_honest_noise_is(tmp_path: Path) -> None:
    suite = (FOLDER / "hostile-fedgat.yaml").read_text().replace("hostile_plugins.py:", f"{FOLDER}/hostile_plugins.py:")
    suite, replaced = re.subn(r"sweep: \[.*\]", f"sweep: [{', '.join(KINDS)}]", suite)
    assert replaced == 1
    made = run(suite, tmp_path)
    place = {entry["setting"]: entry.get("defense_args", "none").partition(";")[0] for entry in made["settings"]}
    said = {(place[answer["setting"]], answer["observer"]): answer["word"] for answer in made["answers"]}
    assert said["none", "server"] == said["none", "client:each"] == "leaks"
    assert said["kind=honest", "client:each"] == "held"
    for kind in KINDS[1:]:
        assert [said[f"kind={kind}", observer] for observer in ("server", "client:each")] == ["not shown"] * 2
