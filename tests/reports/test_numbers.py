"""Numbers as readers see them."""

from __future__ import annotations

import pytest

from fglaudit.reports.numbers import seed_list


@pytest.mark.parametrize(
    ("seeds", "words"),
    [((), "none"), ((3,), "3"), ((0, 1), "0, 1"), ((0, 1, 2), "0 to 2"), ((0, 2, 3, 4, 9), "0, 2 to 4, 9")],
)
def test_seeds_that_follow_one_another_are_said_in_one(seeds: tuple[int, ...], words: str) -> None:
    assert seed_list(seeds) == words
