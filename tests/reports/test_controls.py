"""What a defense bought, by hand."""

from __future__ import annotations

import math

import pytest

from fglaudit.reports.choosing.controls import Measured, best_control, bought

NOTHING = Measured("share nothing", {0: 0.60, 1: 0.62}, 0.0, control=True)
CODES = Measured("codes", {0: 0.70, 1: 0.74}, 0.0, control=True)
DEARER = Measured("reports 8", {0: 0.9, 1: 0.9}, 8.0, control=True)


def test_the_best_control_that_costs_no_more_is_taken() -> None:
    setting = Measured("noise", {0: 0.75, 1: 0.78}, 4.0)
    assert best_control(setting, [NOTHING, CODES, DEARER, setting]) is CODES
    assert best_control(Measured("noise", {0: 0.75}, 8.0), [CODES, DEARER]) is DEARER
    assert best_control(setting, [Measured("not a control", {0: 1.0}, 0.0)]) is None
    assert best_control(setting, [Measured("other seeds", {7: 1.0}, 0.0, control=True)]) is None


def test_gains_are_paired_on_seeds() -> None:
    """Gains 0.05 and 0.04: mean 0.045, standard error 0.005, Student's t of one degree of freedom 12.706."""
    found = bought(Measured("noise", {0: 0.75, 1: 0.78, 5: 0.1}, 4.0), [NOTHING, CODES])
    assert found is not None and found.seeds == 2
    assert found.gain == pytest.approx(0.045)
    assert found.high - found.gain == pytest.approx(12.706 * 0.005, rel=1e-3)
    assert found.words.endswith("over codes: nothing")


def test_one_seed_shows_nothing_but_its_difference() -> None:
    found = bought(Measured("clear", {0: 0.8}, math.inf), [CODES])
    assert found is not None and found.words == "+10.0 over codes, one seed"


def test_an_interval_above_zero_is_a_gain() -> None:
    seeds = range(5)
    control = Measured("codes", {s: 0.7 + 0.01 * s for s in seeds}, 0.0, control=True)
    found = bought(Measured("reports", {s: 0.75 + 0.011 * s for s in seeds}, 4.0), [control])
    assert found is not None and found.low > 0 and not found.words.endswith("nothing")
