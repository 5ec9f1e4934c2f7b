"""A lower bound on epsilon that was measured, and the checks that all estimators share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fglaudit.errors import FglauditError

SMALLEST_P = 1e-30


@dataclass(frozen=True)
class Bound:
    """The mechanism is not (epsilon', delta)-private for any epsilon' below ``epsilon``, with ``confidence``.

    Attributes:
        epsilon: the lower bound; 0 where nothing was shown.
        delta: of the guarantee that is tested.
        confidence: probability, over the runs, that the statement is true; all tries together.
        method: "clopper-pearson", "gdp" or "one-run".
        trials: how many runs, or canaries of one run, the bound was computed on (those that chose the test not
            counted).
        ceiling: the largest bound that this estimator gives on as many trials, whatever the mechanism. A bound near it
            says that more runs would show more.
        at: the bound that the same counts give with another probability of being wrong, all tries together. The test
            was chosen on other runs, so this may be asked for any probability.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    trials: int
    ceiling: float
    at: Callable[[float], float]

    def p_value(self, stated: float) -> float:
        """Return the probability at most, if the mechanism is (``stated``, delta)-private, of counts that speak so
        strongly against it: the smallest error probability with a bound above ``stated``. Values below 1e-30 are given
        as that."""
        low, high = math.log(SMALLEST_P), 0.0
        if self.at(SMALLEST_P) > stated:
            return SMALLEST_P
        while high - low > 1e-6:
            middle = (low + high) / 2
            if self.at(math.exp(middle)) > stated:
                high = middle
            else:
                low = middle
        return math.exp(high)


def error_probability(confidence: float, tried: int, delta: float) -> float:
    """Return the probability of a false bound that one of ``tried`` estimates may use (Bonferroni).

    Raises:
        FglauditError: unless 0 < confidence < 1, tried >= 1 and 0 <= delta < 1.
    """
    if not 0 < confidence < 1:
        raise FglauditError(f"confidence must lie strictly between 0 and 1; got {confidence}; use e.g. 0.95")
    if tried < 1:
        raise FglauditError(f"tried counts the estimates of which the best is taken, at least 1; got {tried}")
    if not (0 <= delta < 1 and math.isfinite(delta)):
        raise FglauditError(f"delta of an empirical bound must be in [0, 1); got {delta}; use e.g. delta: 1.0e-5")
    return (1 - confidence) / tried
