"""How many of the targets of several clusters are hit, if hits within a cluster are correlated, and what that says
about the rate.

Cluster c has n_c targets, its own rate is drawn from a Beta distribution with mean p and intra-cluster correlation r,
so its hits are beta-binomial with a = p (1 - r) / r and b = (1 - p) (1 - r) / r; clusters are independent. r = 0 is the
binomial distribution, r = 1 are clusters of which all targets are hit or none. The law of the total is the exact
convolution over clusters (products of Fourier transforms); limits of p are those at which a tail of it is a given
probability, as Clopper and Pearson (1934) did for the binomial distribution. The total grows stochastically with p, so
each limit is the only root.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq
from scipy.special import gammaln

Floats = NDArray[np.float64]
_TOLERANCE = 1e-7
"""Of a limit; far below what is ever printed."""
_AT_ONCE = 2**19
"""Numbers in the transforms of all distinct sizes."""


@dataclass(frozen=True)
class BetaBinomialTotal:
    """The total number of hits over clusters of ``sizes`` (positive) with intra-cluster ``correlation`` in [0, 1]."""

    sizes: tuple[int, ...]
    correlation: float

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(
                f"clusters must have at least one target each; got sizes {self.sizes}; leave empty ones out"
            )
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"an intra-cluster correlation lies in [0, 1]; got {self.correlation}")

    @property
    def targets(self) -> int:
        return sum(self.sizes)

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct sizes [D] and how many clusters have each [D]."""
        # Uncorrelated targets are one binomial, whatever the clusters.
        sizes = (self.targets,) if self.correlation == 0 else self.sizes
        distinct, clusters = np.unique(np.array(sizes, dtype=np.int64), return_counts=True)
        return distinct, clusters.astype(np.int64)

    @cached_property
    def _log_choose(self) -> tuple[NDArray[np.int64], Floats]:
        """Misses [D, H] at 0 .. H-1 hits, negative where there are more hits than targets, and log binomials [D, H]."""
        sizes = self._distinct[0][:, None]
        hits = np.arange(sizes.max() + 1)
        misses = sizes - hits
        log = gammaln(sizes + 1) - gammaln(hits + 1) - gammaln(np.maximum(misses, 0) + 1)
        return misses, np.where(misses >= 0, log, -np.inf)

    def _clusters(self, rate: float) -> Floats:
        """Probabilities [D, H] of 0 .. H-1 hits in a cluster of each distinct size; 0 < rate < 1."""
        misses, log_choose = self._log_choose
        hits, room = np.arange(misses.shape[1]), np.maximum(misses, 0)
        if self.correlation == 1:
            return np.where(misses == 0, rate, np.where(hits == 0, 1 - rate, 0.0)).astype(np.float64)
        if self.correlation == 0:
            return np.asarray(np.exp(log_choose + hits * np.log(rate) + room * np.log1p(-rate)), dtype=np.float64)
        concentration = (1 - self.correlation) / self.correlation
        a, b = rate * concentration, (1 - rate) * concentration
        rising_a = gammaln(hits + a) - gammaln(a)
        rising_b = (gammaln(hits + b) - gammaln(b))[room]
        whole = (gammaln(hits + concentration) - gammaln(concentration))[self._distinct[0]][:, None]
        return np.asarray(np.exp(log_choose + rising_a + rising_b - whole), dtype=np.float64)

    def probabilities(self, rate: float) -> Floats:
        """Return the probability of every total [targets + 1] at a mean ``rate``."""
        if rate <= 0 or rate >= 1:
            return np.eye(1, self.targets + 1, 0 if rate <= 0 else self.targets, dtype=np.float64).ravel()
        total = _summed(self._clusters(rate), self._distinct[1], self.targets + 1)
        return np.clip(total, 0, 1).astype(np.float64)

    def high(self, total: float, tail: float) -> float:
        """Return the rate at which a total of at most ``total`` has probability ``tail``; 1 where all were hit.

        Shares of hits count as a whole one.
        """
        most = int(np.ceil(total - 1e-9))
        if most >= self.targets:
            return 1.0
        if most == 0:
            return float(brentq(lambda rate: self._no_hit(rate) - tail, 0, 1, xtol=_TOLERANCE))
        return float(brentq(lambda rate: self.probabilities(rate)[: most + 1].sum() - tail, 0, 1, xtol=_TOLERANCE))

    def low(self, total: float, tail: float) -> float:
        """Return the rate at which a total of at least ``total`` has probability ``tail``; 0 where none was hit.

        Shares of hits do not count.
        """
        least = int(np.floor(total + 1e-9))
        if least <= 0:
            return 0.0
        return float(brentq(lambda rate: self.at_least(least, rate) - tail, 0, 1, xtol=_TOLERANCE))

    def at_least(self, total: int, rate: float) -> float:
        """Return the probability of ``total`` hits or more at a mean ``rate``."""
        if total == self.targets:
            return self._no_hit(1 - rate)  # hits and misses are alike
        return float(self.probabilities(rate)[total:].sum())

    def _no_hit(self, rate: float) -> float:
        """Probability that nothing is hit, without the convolution: all attacks that lose nothing ask for it."""
        if rate <= 0 or rate >= 1:
            return float(rate <= 0)
        sizes, clusters = self._distinct
        if self.correlation in (0, 1):
            each = sizes if self.correlation == 0 else np.ones_like(sizes)
            return float((1 - rate) ** int(np.dot(each, clusters)))
        return float(np.exp(np.dot(log_no_hit(sizes, rate, self.correlation), clusters)))


def log_no_hit(sizes: NDArray[np.int64], rate: float | Floats, correlation: float) -> Floats:
    """Return the logarithm of the probability that a cluster of each of ``sizes`` [D] has no hit; 0 < rate,
    correlation < 1."""
    concentration = (1 - correlation) / correlation
    misses = (1 - rate) * concentration
    log = gammaln(sizes + misses) - gammaln(misses) - gammaln(sizes + concentration) + gammaln(concentration)
    return np.asarray(log, dtype=np.float64)


def _summed(each: Floats, count: NDArray[np.int64], length: int) -> Floats:
    """Return the law [length] of the sum of independent numbers: ``count`` [D] of each law ``each`` [D, H].

    All by one product of transforms; where these are many and long, two by two before, equal ones first.
    """
    while len(count) > 1 and len(count) * length > _AT_ONCE:
        size = next_fast_len(2 * each.shape[1] - 1, real=True)
        transform = rfft(each, n=size, axis=1)
        twice, odd = transform[count > 1] ** 2, transform[count % 2 == 1]
        paired = odd[: len(odd) // 2 * 2].reshape(-1, 2, odd.shape[1]).prod(1)
        transform = np.concatenate([twice, paired, odd[2 * len(paired) :]])
        count = np.concatenate([count[count > 1] // 2, np.ones(len(transform) - len(twice), dtype=np.int64)])
        each = irfft(transform, n=size, axis=1)[:, : min(2 * each.shape[1] - 1, length)]
    size = next_fast_len(length, real=True)
    transform, several = rfft(each, n=size, axis=1), count > 1  # complex powers are slow, and most counts are 1
    transform[several] **= count[several, None]
    return np.asarray(irfft(transform.prod(0), n=size)[:length], dtype=np.float64)


@lru_cache(maxsize=16384)
def rate_low(sizes: tuple[int, ...], correlation: float, total: float, tail: float) -> float:
    """Return :meth:`BetaBinomialTotal.low`; all attacks of a cell share the limits of their control."""
    return BetaBinomialTotal(sizes, correlation).low(total, tail)


@lru_cache(maxsize=16384)
def rate_high(sizes: tuple[int, ...], correlation: float, total: float, tail: float) -> float:
    """Return :meth:`BetaBinomialTotal.high`."""
    return BetaBinomialTotal(sizes, correlation).high(total, tail)
