"""The list of slow tests names tests that exist: an entry that matches none would make a slow test a quick one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LISTED = (TESTS / "conftest.py").read_text("utf-8").split("SLOW = (")[1].split("\n)\n")[0]


@pytest.mark.parametrize("entry", re.findall(r'"([^"]+)"', LISTED))
def test_an_entry_begins_the_name_of_a_test(entry: str) -> None:
    file, _, name = entry.partition("::")
    assert f"def {name or 'test_'}" in (TESTS / file).read_text("utf-8"), "mend the entry in tests/conftest.py"
