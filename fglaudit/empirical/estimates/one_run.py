"""Epsilon from one run with many canaries.

Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, algorithm 1 and theorem 5.2.

Each of m canaries is included by a coin toss of its own. After the run the auditor guesses "included" for some, "not
included" for some and abstains on the rest: r guesses, of which v are right. If the mechanism is (epsilon, 0)-private,
each guess is right with probability at most ``q = e^epsilon / (1 + e^epsilon)`` whatever the others are, so
``P[>= v right] <= f(v) = P[Binomial(r, q) >= v]``; with delta,

    P[>= v right] <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i.

The bound is the largest epsilon for which this is at most the error probability. The runs need not be independent of
each other, and m independent runs with one canary each are a special case. The term with delta grows with m: for small
delta only.

Choices where the paper leaves them open: the number of guesses must not depend on the memberships that are scored, so a
fifth of the canaries chooses how many to guess on each side and the others are scored (given the memberships of the
first part, the mechanism is still private in those of the second); or the numbers are fixed beforehand, as they can be
where the noise is stated: then a thousand canaries come within 30 % of epsilon = 0.5 in the median, else it takes ten
thousand. Guesses go to the highest and lowest scores, ties broken at random.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq
from scipy.special import logit
from scipy.stats import beta, binom
from torch import Tensor

from fglaudit.empirical.estimates.bound import Bound, error_probability
from fglaudit.errors import FglauditError

Bools = npt.NDArray[np.bool_]

CHOOSING = 0.2
"""Share of the canaries that choose."""
CAUTION = 0.05
"""Quantile at which a rate seen among few canaries is taken when choosing."""
MIN_CANARIES = 20
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5)
"""Shares of the canaries that may be guessed to be included; the same for not included."""


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest probability, if (epsilon, delta)-private, of ``right`` or more right guesses (theorem 5.2)."""
    q = float(1 / (1 + np.exp(-epsilon)))
    tail = float(binom.sf(right - 1, guesses, q))
    if delta == 0 or right == 0:
        return min(tail, 1.0)
    below = binom.pmf(np.arange(right - 1, -1, -1), guesses, q).cumsum()
    return min(tail + 2 * canaries * delta * float((below / np.arange(1, right + 1)).max()), 1.0)


def refuted_epsilon(right: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """Return the largest epsilon that ``right`` of ``guesses`` right guesses refute, or 0."""

    def excess(epsilon: float) -> float:
        return p_value(right, guesses, canaries, epsilon, delta) - error

    if guesses == 0 or excess(0.0) >= 0:
        return 0.0
    if delta == 0:  # the binomial tail is an incomplete beta function, so q is its quantile
        return float(logit(beta.ppf(error, right, guesses - right + 1)))
    # The p-value grows with epsilon up to 1, so its crossing is unique.
    highest = math.log(2 * (guesses + 1) / min(error, 1 - error))
    crossing = float(brentq(excess, 0.0, highest, xtol=1e-9))
    return max(crossing - 1e-8, 0.0)


def one_run(
    scores: Tensor,
    included: Tensor,
    *,
    delta: float,
    confidence: float,
    rng: torch.Generator,
    tried: int = 1,
    shares: tuple[float, float] | None = None,
) -> Bound:
    """Return a lower bound on epsilon at ``delta``.

    Args:
        scores: of every canary [m], larger where it seems included.
        included: whether it was [m]; drawn independently with probability 1/2 before the run.
        confidence: of the bound, or of all of them where ``tried`` many are computed and the largest is reported.
        rng: separates the canaries that choose from those that are scored.
        shares: of the canaries to guess included and not included, if fixed before the run; then all canaries are
            scored.

    Raises:
        FglauditError: see :func:`error_probability`; if there are fewer than 20 canaries, shapes differ or a score is
            not finite.
    """
    error = error_probability(confidence, tried, delta)
    if scores.dim() != 1 or scores.shape != included.shape or len(scores) < MIN_CANARIES:
        raise FglauditError(
            f"one-run auditing needs a score and a membership for each of at least {MIN_CANARIES} canaries; got shapes "
            f"{tuple(scores.shape)} and {tuple(included.shape)}"
        )
    if shares is not None and not (min(shares) >= 0 and 0 < sum(shares) <= 1):
        raise FglauditError(f"shares of canaries to guess must be at least 0 and sum to at most 1, not 0; got {shares}")
    if not bool(torch.isfinite(scores).all()):
        raise FglauditError(f"scores must be finite; a canary has {scores[~torch.isfinite(scores)][0].item()}")
    order = torch.randperm(len(scores), generator=rng, device="cpu").to(scores.device)
    first = int(CHOOSING * len(order)) if shares is None else 0
    scored = _ranked(scores, included, order[first:])
    m = len(scored)
    high, low = shares or _best_shares(_ranked(scores, included, order[:first]), m, error)
    ups, downs = int(high * m), int(low * m)
    right = int(scored[m - ups :].sum()) + downs - int(scored[:downs].sum())

    def at(total: float) -> float:
        return refuted_epsilon(right, ups + downs, m, delta, total / tried)

    epsilon = at(error * tried)
    return Bound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        method="one-run",
        trials=m,
        ceiling=max(epsilon, ceiling(m, delta, error)),
        at=at,
    )


def ceiling(canaries: int, delta: float, error: float) -> float:
    """Return the largest bound that as many scored canaries can give: every guess right."""
    # With delta it is not best to guess all; sixteen numbers of guesses come close to the best.
    counts = np.unique(np.geomspace(1, canaries, 16).round().astype(int)) if delta else np.array([canaries])
    return max(refuted_epsilon(int(r), int(r), canaries, delta, error) for r in counts)


def _ranked(scores: Tensor, included: Tensor, chosen: Tensor) -> Bools:
    """Return the memberships of ``chosen``, which is in random order, by ascending score."""
    order = torch.argsort(scores[chosen], stable=True)
    ranked: Bools = included[chosen][order].bool().cpu().numpy()
    return ranked


def _best_shares(ranked: Bools, m: int, error: float) -> tuple[float, float]:
    """Return the shares to guess on either side with the largest bound expected on ``m`` canaries, delta left aside."""
    high, low = (grid.ravel() for grid in np.meshgrid(SHARES, SHARES))
    ups, downs = (high * len(ranked)).astype(int), (low * len(ranked)).astype(int)
    included = np.concatenate([[0], np.cumsum(ranked)])
    right = included[-1] - included[len(ranked) - ups] + downs - included[downs]
    # Unlikely rates, not those seen: among many choices the luckiest would otherwise look best.
    rate = beta.ppf(CAUTION, right + 0.5, ups + downs - right + 0.5)
    guesses = (high + low) * m
    q = beta.ppf(error, rate * guesses, (1 - rate) * guesses + 1)
    best = int(np.where(ups + downs > 0, q, 0).argmax())
    return float(high[best]), float(low[best])
