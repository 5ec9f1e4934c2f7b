"""Whether an attack knows something at one client that the mean over all of them hides.

An attack that knows nothing gains on its control no more often than it loses to it, with a rate g that nobody knows;
but it may gain at many targets of one client at once, by one piece of luck. So a client's gains are judged by the
beta-binomial law with the same correlation as everywhere (:mod:`.rates`): how probable are as many at this client, and
how probable are as few losses at all the others? The two are independent; Fisher's rule puts them together, and the g
at which that is most probable decides. Clients are corrected for by their number (Bonferroni).

Few targets at a client say nothing in this way, whatever was gained there: docs/intervals.md has what it takes. Sums
of scores vary less than hits do, so this holds for them too.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from fglaudit.scoring.beta_binomial import BetaBinomialTotal, log_no_hit
from fglaudit.scoring.clusters import MIN_CLUSTERS, Floats, PairedClusters
from fglaudit.scoring.rates import CORRELATION

_RATES = np.geomspace(1e-5, 0.9, 80)
_CONCENTRATION = (1 - CORRELATION) / CORRELATION


def one_client_p_value(paired: PairedClusters) -> float:
    """Return a p-value of "the attack knows nothing at any client"; 1 below ``MIN_CLUSTERS`` clusters."""
    paired = paired.of_targets()
    if not paired.informative or paired.count < MIN_CLUSTERS:
        return 1.0
    room = np.floor(paired.room + 1e-9).astype(np.int64)
    gained = np.minimum(np.floor(paired.gained - paired.lost + 1e-9).astype(np.int64), room)
    if gained.max() < 1:
        return 1.0
    # Every client at one rate says which is the most remarkable; only that one is asked about at all rates.
    client = int(np.argmin(chance_each_at_least(room, gained, float(_RATES[len(_RATES) // 2]))))
    tail = chance_at_least(room[client], gained[client], _RATES)
    others = np.delete(np.arange(len(room)), client)
    sizes = paired.targets[others].astype(np.int64)
    lost = math.ceil(float(paired.lost[others].sum()) - 1e-9)
    both = np.clip(tail * _at_most(sizes, lost, _RATES * (1 - paired.control_rate)), 1e-300, 1.0)
    return min(1.0, len(room) * float((both * (1 - np.log(both))).max()))


def chance_at_least(size: int, hits: int, rates: Floats) -> Floats:
    """Probability of at least ``hits`` among ``size`` targets of one client at each of ``rates``."""
    if hits < 1:
        return np.ones(len(rates))
    counts = np.arange(hits, size + 1)
    choose = gammaln(size + 1) - gammaln(counts + 1) - gammaln(size - counts + 1)
    of_hits, of_misses, of_all = _rising(tuple(rates.tolist()), 2 ** int(size).bit_length())
    log = choose + of_hits[:, counts] + of_misses[:, size - counts] - of_all[:, [size]]
    return np.asarray(np.minimum(np.exp(log).sum(1), 1.0), dtype=np.float64)


@lru_cache(maxsize=64)
def _rising(rates: tuple[float, ...], most: int) -> tuple[Floats, Floats, Floats]:
    """Logarithms of the rising factorials ``a (a + 1) ... (a + n - 1)`` for n = 0 .. ``most``, of a, b and a + b where
    (a, b) is the law's at each of ``rates`` [R, most + 1]: hits and misses of n targets by one look-up each."""
    a = np.array(rates)[:, None] * _CONCENTRATION
    starts = a, _CONCENTRATION - a, np.full_like(a[:1], _CONCENTRATION)
    logs = [np.log(start + np.arange(most)).cumsum(1) for start in starts]
    of_hits, of_misses, of_all = (np.pad(log, ((0, 0), (1, 0))) for log in logs)
    return of_hits, of_misses, of_all


def chance_each_at_least(sizes: NDArray[np.int64], hits: NDArray[np.int64], rate: float) -> Floats:
    """Probability of at least ``hits`` [K] among the ``sizes`` [K] targets of each client, all at one rate."""
    a, b = rate * _CONCENTRATION, (1 - rate) * _CONCENTRATION
    ends, inverse = np.unique(sizes, return_inverse=True)
    counts = np.arange(int(ends[-1]) + 1)
    left = np.maximum(ends[:, None] - counts, 0)
    # What depends on the count alone is looked up: betaln(counts + a, left + b) = these two less gammaln(size + a + b).
    factorials, ones, zeros = gammaln(counts + 1.0), gammaln(counts + a), gammaln(counts + b)
    log = factorials[ends][:, None] - factorials - factorials[left] + ones + zeros[left]
    log -= gammaln(ends + a + b)[:, None] + betaln(a, b)
    chance = np.where(counts <= ends[:, None], np.exp(log), 0.0)
    tails = np.minimum(chance[:, ::-1].cumsum(1)[:, ::-1], 1.0)
    return np.where(hits < 1, 1.0, tails[inverse, np.clip(hits, 0, ends[-1])])


def _at_most(sizes: NDArray[np.int64], lost: int, rates: Floats) -> Floats:
    """Probability of at most ``lost`` losses in clusters of ``sizes`` at each of ``rates``."""
    distinct, clusters = np.unique(sizes[sizes > 0], return_counts=True)
    if lost == 0:
        return np.exp(log_no_hit(distinct, rates[:, None], CORRELATION) @ clusters)
    law = BetaBinomialTotal(tuple(np.repeat(distinct, clusters).tolist()), CORRELATION)
    return np.array([float(law.probabilities(rate)[: lost + 1].sum()) for rate in rates])
