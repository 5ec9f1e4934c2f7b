"""Tests of scores against a stated curve: their level, their power, and what they can refute at all."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
import torch

from fglaudit.empirical.audits.planted_rows import most_right
from fglaudit.empirical.estimates.curve_test import Curve, curve_test, largest_epsilon, power
from fglaudit.errors import FglauditError
from fglaudit.guarantees import REFUTED_AT
from fglaudit.privacy.accounting import Relation, compose, event_of, noise_multiplier
from fglaudit.privacy.tradeoff import TradeOff, narrowed
from fglaudit.rng import derive

MU = 1 / float(dp_accounting.get_sigma_gaussian(2.0, 1e-5))
"""Of a Gaussian mechanism with epsilon 2."""


def _normal(mu: float, count: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, generator=rng) + mu, torch.randn(count, generator=rng)


def test_an_honest_mechanism_is_refuted_as_seldom_as_stated() -> None:
    curve, rng = Curve.of(TradeOff.gaussian(MU)), derive(0, "level")
    found = [curve_test(*_normal(MU, 300, rng), curve, rng=rng).p_value for _ in range(40)]
    assert sum(p <= 0.1 for p in found) <= 12  # of 4 expected at most; 13 or more have probability 1e-4


def test_noise_too_small_is_seen_and_the_power_is_as_stated() -> None:
    curve, rng = Curve.of(TradeOff.gaussian(MU)), derive(0, "power")
    found = [curve_test(*_normal(1.5 * MU, 4000, rng), curve, rng=rng).p_value for _ in range(8)]
    assert sum(p <= REFUTED_AT for p in found) >= 7
    assert power(curve, TradeOff.gaussian(1.5 * MU), 4000, REFUTED_AT) >= 0.9
    assert power(curve, TradeOff.gaussian(1.5 * MU), 500, REFUTED_AT) < 0.2


@pytest.mark.parametrize("releases", [1, 5, 20, 100])
def test_power_does_not_die_with_releases(releases: int) -> None:
    multiplier = noise_multiplier("laplace", 2.0, 1e-5, Relation.REPLACE, releases)
    event = compose(event_of("laplace", multiplier), releases)
    stated, weaker = (TradeOff.of(e, Relation.REPLACE) for e in (event, narrowed(event, 1.5)))
    assert power(stated, weaker, 6000, REFUTED_AT) >= 0.9


def test_a_perfect_leak() -> None:
    stated = TradeOff.gaussian(MU)
    found = curve_test(torch.ones(140), torch.zeros(140), stated, rng=derive(0, "leak"))
    assert found.p_value <= REFUTED_AT and found.hits == 1 and found.alarms == 0
    turned = curve_test(torch.zeros(140), torch.ones(140), stated, rng=derive(0, "leak"))
    assert turned.p_value <= REFUTED_AT, "both directions count"
    assert largest_epsilon(stated, 140, REFUTED_AT, 1e-5) > 8
    pure = TradeOff(None, (2.0,), (0.0,))
    few, many = (largest_epsilon(pure, count, REFUTED_AT, 0.0) for count in (140, 4000))
    assert 2 < few < 3 < many < 8
    laplace = TradeOff.of(event_of("laplace", 0.5), Relation.ZERO_OUT)
    assert few < largest_epsilon(laplace, 140, REFUTED_AT, 0.0), "its curve allows less than its pure epsilon alone"


def test_what_is_no_score() -> None:
    with pytest.raises(FglauditError, match="40 replays"):
        curve_test(torch.zeros(5), torch.zeros(5), TradeOff.gaussian(1.0), rng=derive(0, "few"))
    bad = torch.zeros(50)
    bad[3] = math.nan
    with pytest.raises(FglauditError, match="finite"):
        curve_test(bad, torch.zeros(50), TradeOff.gaussian(1.0), rng=derive(0, "nan"))


def test_guesses_of_planted_rows_are_bounded() -> None:
    pure = TradeOff(None, (1.0,), (0.0,))
    # A randomised response among 4 candidates reaches the bound.
    assert most_right(pure, 4, Relation.REPLACE, neighbors=True) == pytest.approx(math.e / (math.e + 3))
    gaussian = TradeOff.gaussian(1.0)
    rng = np.random.default_rng(0)
    centers = np.eye(3)  # each at distance 1 from zero
    seen = centers[:, None] + rng.standard_normal((3, 20_000, 3))
    guess = ((seen[:, :, None] - centers) ** 2).sum(3).argmin(2)
    right = float((guess == np.arange(3)[:, None]).mean())
    assert right < most_right(gaussian, 3, Relation.ZERO_OUT, neighbors=False) < right + 0.2
