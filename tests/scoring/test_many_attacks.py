"""Leaks among many attacks: Holm's rule against a plain one on p-values, and how often nothing is called something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from fglaudit.scoring.clusters import Interval, PairedClusters
from fglaudit.scoring.many_attacks import leaking
from fglaudit.scoring.scores import score_advantage_interval


def known_error(value: float, tail: float) -> Interval:
    """A normal interval with standard error 1."""
    reach = float(norm.ppf(1 - tail))
    return Interval(value, value - reach, value + reach, "cluster jackknife", 9)


def interval_of(value: float) -> Callable[[float], Interval]:
    return partial(known_error, value)


def holm(p_values: list[float], level: float) -> list[bool]:
    """The textbook's step-down rule."""
    order = np.argsort(p_values)
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


@pytest.mark.parametrize("seed", range(20))
def test_it_is_holms_rule(seed: int) -> None:
    values = np.random.default_rng(seed).normal(2, 1, 6).tolist()
    assert leaking([interval_of(v) for v in values]) == holm([float(norm.sf(v)) for v in values], 0.025)


def test_one_attack_needs_what_its_printed_interval_says_and_seven_need_more() -> None:
    assert leaking([interval_of(2.0)]) == [True]
    assert leaking([interval_of(1.9)]) == [False]
    assert leaking([interval_of(2.0)] + [interval_of(0.0)] * 6) == [False] * 7
    assert leaking([interval_of(3.0)] + [interval_of(0.0)] * 6) == [True] + [False] * 6


def test_a_range_is_no_leak_but_counts_as_a_try() -> None:
    def only_a_range(tail: float) -> Interval:
        return Interval(0.9, 0.8, 1.0, "range", 3)

    assert leaking([only_a_range]) == [False]
    assert leaking([interval_of(2.1), only_a_range]) == [False, False]


def test_the_margin_is_what_a_leak_must_exceed() -> None:
    assert leaking([interval_of(3.0)], above=2.0) == [False]
    assert leaking([]) == []


def test_seven_harmless_attacks_are_rarely_called_a_leak() -> None:
    """They share a control, as attacks on one observer do; 600 runs, of which 5 % are 30."""
    rng = np.random.default_rng(5)
    n, corrected, alone = np.full(6, 20.0), 0, 0
    for _ in range(600):
        control = rng.beta(3, 6, 6)
        moves = rng.beta(3, 6, (7, 6)) - control
        tries = [
            partial(_interval, PairedClusters(n, n * control, n * np.maximum(move, 0), n * np.maximum(-move, 0)))
            for move in moves
        ]
        corrected += any(leaking(tries))
        alone += any(leaking([one])[0] for one in tries)
    assert corrected <= 30
    assert alone > 2 * corrected


def _interval(paired: PairedClusters, tail: float) -> Interval:
    return score_advantage_interval(paired, tail=tail)
