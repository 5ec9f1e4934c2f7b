"""What to set where replays cannot tell noise that is right from noise too small: the reason of an untested curve."""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit.empirical.estimates.curve_test import power
from fglaudit.privacy.accounting import epsilon_of_mu
from fglaudit.privacy.tradeoff import TradeOff

_GROWTH = 1.15
"""Step in mu by which the weakest noise that can be tested is looked for."""
_STEPS = 40


def why_too_weak(
    stated: TradeOff,
    weaker: TradeOff | None,
    replays: Sequence[int],
    level: float,
    delta: float,
    needed: float,
    whole: float | None,
) -> str:
    """Return why the most of ``replays`` that were allowed are too few for a stated curve, and what can be set.

    Args:
        stated, weaker: the curve, and the one that the canary would show with noise that is too small.
        level: at which a test refutes.
        needed: with which probability too small noise must be seen.
        whole: mu of all mechanisms together, of which ``stated`` may be one; None: not known.
    """
    if weaker is None:
        return "how well replays tell too small noise from that stated is not known for this mechanism"
    most = max(replays)
    seen = power(stated, weaker, most, level)
    text = (
        f"noise too small by 1.5 would be seen in {most} replays with probability {seen:.2f}, and {needed:g} is needed"
    )
    least = _least_testable(stated, weaker, most, level, needed) if 0 < delta < 1 else None
    if least is None or whole is None or not stated.mu:
        return f"{text}; audit the mechanism alone: fglaudit audit-mechanism FILE:FUNCTION --epsilon E --replays N"
    testable = epsilon_of_mu(whole * least / stated.mu, delta)
    return (
        f"{text}: so small an epsilon hides in its noise; what this setting can test is epsilon"
        f" {testable:.2g} or more; of a smaller one audit the mechanism alone, with more replays:"
        f" fglaudit audit-mechanism FILE:FUNCTION --gaussian --epsilon E --delta {delta:g} --replays N"
    )


def _least_testable(stated: TradeOff, weaker: TradeOff, replays: int, level: float, needed: float) -> float | None:
    """Return the smallest mu at which the same canary would tell; None where none would, or noise is not Gaussian."""
    if stated.mu is None or weaker.mu is None or weaker.mu <= stated.mu:
        return None
    mu = stated.mu
    for _ in range(_STEPS):
        mu *= _GROWTH
        if power(TradeOff.gaussian(mu), TradeOff.gaussian(mu * weaker.mu / stated.mu), replays, level) >= needed:
            return mu
    return None
