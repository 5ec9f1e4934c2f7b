"""The trade-off curve as replays measured it, with a band that holds for all of its points at once.

Each rate of the two worlds is an empirical distribution function, which lies nowhere further from the true one than
``sqrt(log(2 / p) / 2 n)`` but with probability p (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's constant, 1990):
both rates of every threshold together, in both worlds and for all canaries of which the most telling is drawn.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound
from fglaudit.guarantees import BAND, MeasuredCurve
from fglaudit.privacy.tradeoff import TradeOff

POINTS = 15
"""Thresholds of which the rates are kept."""
GRID = (0.0, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
"""False alarms at which the stated curve is kept."""
_DIGITS = 4


def measured_curve(
    present: Tensor, absent: Tensor, stated: TradeOff, bound: Bound, words: str, tests: int
) -> MeasuredCurve:
    """Return what is drawn of the scores of one canary.

    Args:
        present, absent: finite scores of replays with the record [n1] and without [n0].
        stated: the curve that they were tested against.
        bound: on epsilon, that they show.
        words: which canary.
        tests: canaries of which this one was chosen.
    """
    there, gone = (np.sort(scores.detach().double().cpu().numpy()) for scores in (present, absent))
    turned = np.median(there) < np.median(gone)
    if turned:
        there, gone = np.sort(-there), np.sort(-gone)
    pool = np.sort(np.concatenate([there, gone]))
    thresholds = np.unique(pool[np.linspace(0, len(pool) - 1, POINTS).round().astype(int)])
    above = [1 - np.searchsorted(scores, thresholds) / len(scores) for scores in (gone, there)]
    alarms, hits = (np.round([*rates, 0.0], _DIGITS).tolist() for rates in above)
    margin = math.sqrt(math.log(4 * tests / (1 - BAND)) / (2 * min(len(there), len(gone))))
    return MeasuredCurve(
        canary=words.split(":")[0],
        epsilon=bound.epsilon,
        ceiling=bound.ceiling,
        replays=min(len(there), len(gone)),
        alarms=tuple(alarms),
        hits=tuple(hits),
        margin=round(margin, _DIGITS),
        stated_alarms=GRID,
        stated_hits=tuple(round(stated.hits(alarm), _DIGITS) for alarm in GRID),
    )
