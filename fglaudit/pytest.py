"""For tests of other distributions: the fixture ``fglaudit_check``, which pytest finds where fglaudit is installed.

::

    def test_my_defense(fglaudit_check):
        fglaudit_check(MyDefense(std=2.0), protocols=["fedgcn"])

It does what ``fglaudit check --quick`` does and fails the test with the fault in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

Check = Callable[..., list[str]]


@pytest.fixture
def fglaudit_check() -> Check:
    """Return a function that checks a protocol, defense or attack and returns what it found, a line each."""

    def run(plugin: Any, *, protocols: Sequence[str] = (), quick: bool = True) -> list[str]:
        # Imported here: every test run of an environment with fglaudit loads this module.
        from fglaudit.registry import kind_of
        from fglaudit.testing.plugin import check

        lines = list(check(kind_of(plugin), plugin, protocols=protocols, quick=quick))
        said = [line.text for line in lines]
        if any(line.code for line in lines):
            pytest.fail("\n".join(said), pytrace=False)
        return said

    return run
