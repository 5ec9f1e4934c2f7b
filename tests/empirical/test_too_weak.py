"""What is said where replays are too few to test an epsilon, and what can be set then."""

from __future__ import annotations

import re

import pytest

from fglaudit.empirical.audits.too_weak import why_too_weak
from fglaudit.empirical.audits.trade_off import ENOUGH, REPLAYS, TOO_SMALL
from fglaudit.empirical.estimates.curve_test import power
from fglaudit.privacy.accounting import epsilon_of_mu
from fglaudit.privacy.tradeoff import TradeOff

LEVEL = 1e-5 / 5


def mu_at(epsilon: float) -> float:
    low, high = 0.0, 10.0
    for _ in range(50):
        low, high = (m, high) if epsilon_of_mu(m := (low + high) / 2, 1e-5) < epsilon else (low, m)
    return low


def power_at(epsilon: float) -> float:
    mu = mu_at(epsilon)
    return power(TradeOff.gaussian(mu), TradeOff.gaussian(TOO_SMALL * mu), REPLAYS[-1], LEVEL)


def test_an_epsilon_of_a_half_can_be_tested() -> None:
    assert power_at(0.5) >= 0.95


@pytest.mark.parametrize("reach", [1.0, 0.8])
def test_the_smallest_epsilon_that_can_be_tested_is_named(reach: float) -> None:
    mu = mu_at(0.1)
    stated, weaker = TradeOff.gaussian(mu), TradeOff.gaussian(TOO_SMALL * reach * mu)
    said = why_too_weak(stated, weaker, REPLAYS, LEVEL, 1e-5, ENOUGH, mu)
    found = re.search(r"test is epsilon ([\d.]+) or more", said)
    assert found and "audit-mechanism" in said and "in 100000 replays" in said and "--delta 1e-05" in said
    for epsilon, enough in ((1.05 * float(found[1]), True), (0.7 * float(found[1]), False)):
        at = mu_at(epsilon)
        seen = power(TradeOff.gaussian(at), TradeOff.gaussian(TOO_SMALL * reach * at), REPLAYS[-1], LEVEL)
        assert (seen >= ENOUGH) is enough


@pytest.mark.parametrize("weaker", [None, TradeOff.gaussian(0.01)])
def test_no_epsilon_is_named_where_none_could_be_tested(weaker: TradeOff | None) -> None:
    said = why_too_weak(TradeOff.gaussian(0.02), weaker, REPLAYS, LEVEL, 1e-5, ENOUGH, 0.02)
    assert "or more" not in said


def test_of_several_mechanisms_the_epsilon_of_all_is_named() -> None:
    mu = mu_at(0.1)
    stated, weaker = TradeOff.gaussian(mu), TradeOff.gaussian(TOO_SMALL * mu)
    alone, all_three, unknown = (
        why_too_weak(stated, weaker, REPLAYS, LEVEL, 1e-5, ENOUGH, whole) for whole in (mu, 3**0.5 * mu, None)
    )
    one, three = (float(re.search(r"epsilon ([\d.]+) or more", said)[1]) for said in (alone, all_three))  # type: ignore[index]
    assert 1.5 * one < three < 2 * one and "or more" not in unknown
