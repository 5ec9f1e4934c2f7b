"""What lower bounds on epsilon reach against mechanisms whose epsilon is known: the table of docs/defenses.md.

A bit is sent with Laplace noise, or by randomised response, 1000 times; of each estimator the median bound over seeds,
as a share of the true epsilon, and how many of the seeds are within 30 % of it. ``python -m bench epsilon-estimators``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from fglaudit.empirical.estimates.clopper_pearson import clopper_pearson
from fglaudit.empirical.estimates.one_run import one_run
from fglaudit.rng import derive

EPSILONS = (0.5, 1.0, 2.0, 4.0)
CONFIDENCE, WITHIN = 0.95, 0.3
Mechanism = Callable[[Tensor, float, torch.Generator], Tensor]
Estimator = Callable[[float, int, torch.Generator], float]
"""From epsilon, runs and a generator to a lower bound on epsilon."""


def laplace(bits: Tensor, epsilon: float, rng: torch.Generator) -> Tensor:
    """Return ``bits`` [n] with Laplace noise: (epsilon, 0)."""
    u = torch.rand(bits.shape, generator=rng, dtype=torch.double) - 0.5
    return bits.double() - u.sign() * torch.log1p(-2 * u.abs()) / epsilon


def randomised_response(bits: Tensor, epsilon: float, rng: torch.Generator) -> Tensor:
    """Return ``bits`` [n], each true with probability ``e^epsilon / (1 + e^epsilon)``: (epsilon, 0)."""
    return (bits ^ (torch.rand(bits.shape, generator=rng) < 1 / (1 + math.exp(epsilon)))).double()


def laplace_shares(epsilon: float) -> tuple[float, float]:
    """Return the shares of scores above 1 and below 0, where Laplace noise says most, all alike."""
    share = (1 + math.exp(-epsilon)) / 4
    return share, share


def from_one_run(
    mechanism: Mechanism, epsilon: float, runs: int, rng: torch.Generator, shares: tuple[float, float] | None
) -> float:
    """Return the bound from one run with ``runs`` canaries; without ``shares`` a fifth of them chooses these."""
    bits = torch.rand(runs, generator=rng) < 0.5
    scores = mechanism(bits, epsilon, rng)
    return one_run(scores, bits, delta=0.0, confidence=CONFIDENCE, rng=rng, shares=shares).epsilon


def from_independent_runs(epsilon: float, runs: int, rng: torch.Generator) -> float:
    """Return the bound from ``runs`` independent runs, half of them with the bit set."""
    bits = torch.arange(runs) % 2 == 0
    scores = laplace(bits, epsilon, rng)
    return clopper_pearson(scores[bits], scores[~bits], delta=0.0, confidence=CONFIDENCE, rng=rng).epsilon


ESTIMATORS: dict[str, Estimator] = {
    "Laplace, one run, guesses known from the noise": lambda e, n, rng: from_one_run(
        laplace, e, n, rng, laplace_shares(e)
    ),
    "Laplace, one run, guesses chosen on a fifth": lambda e, n, rng: from_one_run(laplace, e, n, rng, None),
    "randomised response, one run, guesses known": lambda e, n, rng: from_one_run(
        randomised_response, e, n, rng, (0.5, 0.5)
    ),
    "Laplace, independent runs (Clopper-Pearson)": from_independent_runs,
}


def run(seeds: int = 100, runs: int = 1000) -> None:
    """Print the table: median share of the true epsilon, and in brackets the share of seeds within 30 % of it."""
    print("| mechanism | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |")
    print("|---" * (len(EPSILONS) + 1) + "|")
    for name, estimator in ESTIMATORS.items():
        cells = [
            reached([estimator(e, runs, derive(s, "estimator", name, str(e))) / e for s in range(seeds)])
            for e in EPSILONS
        ]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


def reached(shares: list[float]) -> str:
    """Return the cell for bounds as shares of the true epsilon [S]."""
    close = sum(share > 1 - WITHIN for share in shares) / len(shares)
    return f"{statistics.median(shares):.2f} ({close:.0%})"
