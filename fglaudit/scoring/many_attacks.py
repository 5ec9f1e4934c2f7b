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

from fglaudit.scoring.clusters import TAIL


def step_down(tests: Sequence[Callable[[float], bool]]) -> list[bool]:
    """Return which hypotheses Holm's rule rejects, each given by whether it is rejected at a level: of harmless attacks
    any one with probability ``TAIL``. What can never be rejected counts as one that was tried."""
    undecided, found = set(range(len(tests))), set[int]()
    while undecided:
        new = {index for index in undecided if tests[index](TAIL / len(undecided))}
        if not new:
            break
        found |= new
        undecided -= new
    return [index in found for index in range(len(tests))]
