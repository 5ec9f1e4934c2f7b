"""Numbers as readers see them."""

from __future__ import annotations

import pytest

from fglaudit.reports.numbers import MINUS, against, seeds_words, signed


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((), "no seed"),
        ((3,), "seed 3"),
        ((0, 1), "seeds 0, 1"),
        ((0, 1, 2), "seeds 0 to 2"),
        ((0, 2, 3, 4, 9), "seeds 0, 2 to 4, 9"),
    ],
)
def test_seeds_that_follow_one_another_are_said_in_one(seeds: tuple[int, ...], words: str) -> None:
    assert seeds_words(seeds) == words


@pytest.mark.parametrize(
    ("value", "limit", "form", "words"),
    [
        (0.0204, 0.02, ".3f", "0.0204"),
        (0.0200001, 0.02, ".3f", "0.0200001"),
        (0.02, 0.02, ".3f", "0.020"),
        (0.0196, 0.02, ".3f", "0.0196"),
        (0.7496, 0.75, ".3f", "0.7496"),
        (8.00004, 8, ".4g", "8.00004"),
        (3.14159, 8, ".4g", "3.142"),
    ],
)
def test_rounding_moves_no_figure_to_its_limit(value: float, limit: float, form: str, words: str) -> None:
    assert against(value, limit, form) == words


def test_a_sign_is_typographic() -> None:
    assert (signed(-47.53), signed(2.0)) == (f"{MINUS}47.5", "+2.0")
