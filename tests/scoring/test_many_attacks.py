"""Leaks among many attacks: Holm's rule against a plain one on p-values, and how often nothing is called something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from fglaudit.scoring.clusters import TAIL, PairedClusters
from fglaudit.scoring.many_attacks import step_down
from fglaudit.scoring.metrics import exceeds_zero, metric_interval


def above(value: float) -> Callable[[float], bool]:
    """Whether the lower limit of a normal estimate with standard error 1 lies above 0, by the level of its tail."""
    return lambda tail: value > float(norm.ppf(1 - tail))


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
    assert step_down([above(v) for v in values]) == holm([float(norm.sf(v)) for v in values], 0.025)


def test_one_attack_needs_what_its_printed_interval_says_and_seven_need_more() -> None:
    assert step_down([above(2.0)]) == [True]
    assert step_down([above(1.9)]) == [False]
    assert step_down([above(2.0)] + [above(0.0)] * 6) == [False] * 7
    assert step_down([above(3.0)] + [above(0.0)] * 6) == [True] + [False] * 6


def test_what_can_never_be_shown_counts_as_a_try() -> None:
    assert step_down([above(2.1), lambda tail: False]) == [False, False]
    assert step_down([]) == []


@pytest.mark.parametrize("metric", ["exact_rate", "f1"])
def test_few_clusters_show_nothing_at_any_level(metric: str) -> None:
    few, more = (PairedClusters(n, 0 * n, n.copy(), 0 * n) for n in (np.full(3, 20.0), np.full(9, 20.0)))
    assert not exceeds_zero(metric, few, tail=0.4) and exceeds_zero(metric, more, tail=TAIL / 7)


@pytest.mark.parametrize("metric", ["exact_rate", "f1"])
def test_a_leak_is_asked_of_the_limit_that_is_printed(metric: str) -> None:
    """Of rates it is asked without working the limit out: both must say the same, at the level of every step."""
    rng, seen = np.random.default_rng(3), set[bool]()
    n = np.full(8, 25.0)
    for _ in range(60):
        control = rng.binomial(25, 0.2, 8).astype(float)
        gained, lost = (
            rng.binomial(25 - control.astype(int), rng.uniform(0.05, 0.9)),
            rng.binomial(control.astype(int), 0.25),
        )
        paired = PairedClusters(n, control, gained.astype(float), lost.astype(float))
        for tail in (TAIL, TAIL / 2, TAIL / 7):
            low = metric_interval(metric, paired, tail=tail).low
            assert low is not None and exceeds_zero(metric, paired, tail=tail) is (low > 0)
            seen.add(low > 0)
    assert seen == {True, False}


def test_seven_harmless_attacks_are_rarely_called_a_leak() -> None:
    """They share a control, as attacks on one observer do; 600 runs, of which 5 % are 30."""
    rng = np.random.default_rng(5)
    n, corrected, alone = np.full(6, 20.0), 0, 0
    for _ in range(600):
        control = rng.beta(3, 6, 6)
        moves = rng.beta(3, 6, (7, 6)) - control
        tries = [
            partial(_called, PairedClusters(n, n * control, n * np.maximum(move, 0), n * np.maximum(-move, 0)))
            for move in moves
        ]
        corrected += any(step_down(tries))
        alone += any(one(TAIL) for one in tries)
    assert corrected <= 30
    assert alone > 2 * corrected


def _called(paired: PairedClusters, tail: float) -> bool:
    return exceeds_zero("f1", paired, tail=tail)
