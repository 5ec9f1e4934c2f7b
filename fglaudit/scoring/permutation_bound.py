"""Whether so many rows are exact that what an observer was sent must have told them, however few clients there are.

An interval over clients says how far a figure carries over to further clients; below five clients there is none. That
*these* rows were told needs no further clients. Suppose an attack's rows had been dealt at random to the nodes it gives
them for. Of rows that one node of the graph has alone, each fits one node at the most, so one is expected to be right,
however many there are. The number of right ones is Hoeffding's combinatorial statistic, whose upper tail Chatterjee
(2007, Stein's method for concentration inequalities, Proposition 1.1) bounds: ``P(X - m >= t) <= exp(-t^2 / (4 m + 2
t))`` where m is the expectation, here 1. Of several trainings the mean counts, for which the bound holds whatever they
have in common.

One observer is asked: of clients in turn, who may all be right or wrong together, the one whose self-test ran. Side
knowledge may tell rows without any message (features that are a node's degree). So the rows that the same attack has of
messages of noise are taken off (:func:`.selftest.on_noise`).
"""

from __future__ import annotations

import math

LEVEL = 0.001
"""Largest probability of calling an observer's attacks on rows a leak where rows were dealt at random, over all of its
attacks: the bound can afford one at which it adds nothing to speak of to the other grounds' 0.05."""


def dealt_at_random(right: float) -> float:
    """Return a bound on the p-value of "the rows were dealt at random to the nodes".

    Args:
        right: how many exact rows are those of one node alone; the mean over trainings.
    """
    more = right - 1
    return 1.0 if more <= 0 else math.exp(-(more**2) / (4 + 2 * more))
