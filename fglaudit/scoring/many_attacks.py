"""Which of several attacks leak, when all of them had a try at the same thing.

The more attacks, the more of them beat their control by chance. Holm's (1979) step-down test keeps the probability that
any harmless attack is called a leak at that of one tail of a 95 % interval, however the attacks depend on each other
(they share clusters and a control). It needs no p-values: an attack is a leak at a level if its lower limit at this
level is above 0. One attack alone is called a leak exactly if its printed 95 % interval says so.

Nothing of the kind is needed for "held": there every attack's own upper limit must be small, and more attacks only make
that harder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fglaudit.scoring.clusters import TAIL, Interval


def leaking(intervals: Sequence[Callable[[float], Interval]], *, above: float = 0.0) -> list[bool]:
    """Return which of the attacks on one observer and quantity leak; any harmless one does with probability ``TAIL``.

    Args:
        intervals: per attack its interval as a function of the probability of a tail; an attack that has only a range
            counts as one that was tried and is never called a leak.
        above: the advantage that a leak must exceed.
    """
    tests = [lambda at, interval=interval: _exceeds(interval(at), above) for interval in intervals]
    return step_down(tests)


def step_down(tests: Sequence[Callable[[float], bool]]) -> list[bool]:
    """Return which hypotheses Holm's rule rejects, each given by whether it is rejected at a level."""
    undecided, found = set(range(len(tests))), set[int]()
    while undecided:
        new = {index for index in undecided if tests[index](TAIL / len(undecided))}
        if not new:
            break
        found |= new
        undecided -= new
    return [index in found for index in range(len(tests))]


def _exceeds(interval: Interval, above: float) -> bool:
    return interval.shown and interval.low is not None and interval.low > above
