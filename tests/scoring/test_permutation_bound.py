"""When exact rows cannot have fallen to their nodes by chance."""

from __future__ import annotations

import numpy as np
import pytest

from fglaudit.scoring.permutation_bound import LEVEL, dealt_at_random


@pytest.mark.parametrize("rows", [5, 12, 60])
@pytest.mark.parametrize("trainings", [1, 3])
@pytest.mark.parametrize("alike", [True, False])
def test_the_bound_holds_for_rows_that_are_dealt_at_random(rows: int, trainings: int, alike: bool) -> None:
    """Trainings may deal alike or on their own."""
    rng = np.random.default_rng(0)
    draws = rng.permuted(np.tile(np.arange(rows), (4000, 1 if alike else trainings, 1)), axis=2)
    right = (draws == np.arange(rows)).sum(2).mean(1)
    for least in range(2, 10):
        assert float((right >= least).mean()) <= dealt_at_random(least)


def test_what_is_expected_shows_nothing_and_a_few_dozen_rows_do() -> None:
    assert dealt_at_random(1) == dealt_at_random(0) == 1.0
    assert dealt_at_random(8) > LEVEL > dealt_at_random(20)
    values = [dealt_at_random(right) for right in range(60)]
    assert values == sorted(values, reverse=True)
