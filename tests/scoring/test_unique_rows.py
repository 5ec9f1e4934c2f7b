"""When exact rows cannot have fallen to their nodes by chance."""

from __future__ import annotations

import numpy as np
import pytest

from fglaudit.scoring.unique_rows import LEVEL, dealt_at_random


@pytest.mark.parametrize(("observers", "rows"), [(1, 5), (3, 60), (10, 12)])
def test_the_bound_holds_for_rows_that_are_dealt_at_random(observers: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    draws = rng.permuted(np.tile(np.arange(rows), (4000, observers, 1)), axis=2)
    right = (draws == np.arange(rows)).sum((1, 2))
    for least in range(observers + 1, observers + 9):
        assert float((right >= least).mean()) <= dealt_at_random(least, observers)


def test_what_is_expected_shows_nothing_and_a_few_dozen_rows_do() -> None:
    assert dealt_at_random(3, 3) == 1.0 and dealt_at_random(0, 0) == 1.0
    assert dealt_at_random(12, 3) > LEVEL > dealt_at_random(30, 3)
    values = [dealt_at_random(right, 5) for right in range(5, 60)]
    assert values == sorted(values, reverse=True)
