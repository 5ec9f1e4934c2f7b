"""The list of slow tests names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SLOW

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("entry", SLOW)
def test_an_entry_begins_the_name_of_a_test(entry: str) -> None:
    file, _, name = entry.partition("::")
    assert f"def {name or 'test_'}" in (TESTS / file).read_text(), "mend the entry in tests/conftest.py"
