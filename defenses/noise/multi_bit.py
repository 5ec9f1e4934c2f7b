"""Multi-bit randomised response on feature rows.

Sajadmanesh and Gatica-Perez, "Locally private graph neural networks", CCS 2021, section 4.1, algorithms 1 and 2.

Of the d features of a row, m are drawn without replacement. For each of these the client draws one bit t with

    P[t = 1] = 1 / (e^(epsilon/m) + 1) + (x - low) / (high - low) * (e^(epsilon/m) - 1) / (e^(epsilon/m) + 1)

and reports x* = 2 t - 1; the others report 0. The rectified report ``(low + high) / 2 + step x*`` with
``step = d (high - low) / (2 m) * (e^(epsilon/m) + 1) / (e^(epsilon/m) - 1)`` has the mean x (proposition 4.2), so sums
over neighbours are unbiased. Which features were drawn does not depend on the row, each bit is (epsilon / m,
0)-private, and m of them compose to epsilon (theorem 4.1). Entries are clipped to [low, high], so the guarantee holds
for any features.

``sampled: 0`` takes the paper's m, ``max(1, min(d, floor(epsilon / 2.18)))`` (proposition 4.4), with the epsilon of one
row. By default clients compute with the reports x* themselves, which are the rectified ones up to a public factor and
offset: rectified rows have entries of size step, hundreds for d = 1433, and training that does not rescale its inputs
diverges on them (LPGNN itself averages them over many hops first). ``rectified: true`` is the paper's.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import dp_accounting
import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.noise.randomised_rows import LocalSession, nothing_sent
from fglaudit.errors import FglauditError
from fglaudit.facts import MULTI_BIT, ROWS, Fact, Randomised
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.privacy.accounting import Relation, check_budget, compose, epsilon_of
from fglaudit.privacy.strength import weaker_budget

BEST_BUDGET = 2.18
"""Epsilon per sampled feature at which the variance of a report is least (proposition 4.4)."""
_LARGEST_BIT = 700.0
"""Of the epsilon of one bit; beyond it its exponential is no number, and no bit has lied long before."""


class _Session(LocalSession):
    def __init__(self, defense: MultiBit, context: Context) -> None:
        self.low, self.high = defense.low, defense.high
        epsilon = defense.epsilon / context.rows_per_node
        most = context.num_features
        self.sampled = min(most, defense.sampled or max(1, math.floor(epsilon / BEST_BUDGET)))
        self.bit_epsilon = min(epsilon / self.sampled, _LARGEST_BIT)
        width = defense.high - defense.low
        center = (defense.low + defense.high) / 2
        step = most * width / (2 * self.sampled) / math.tanh(self.bit_epsilon / 2)
        self.center, self.step = (center, step) if defense.rectified else (0.0, 1.0)
        bits = self.sampled * context.rows_per_node
        one = dp_accounting.RandomizedResponseDpEvent(2 / (math.exp(self.bit_epsilon) + 1), 2)
        promise = Guarantee(
            mechanism=f"multi-bit on feature rows: {self.sampled} of {most} features, {self.bit_epsilon:.4g} each",
            epsilon_claimed=defense.epsilon,
            epsilon_accounted=epsilon_of(compose(one, bits), 0.0, Relation.REPLACE),
            delta=0.0,
            unit="node",
            adjacency=Relation.REPLACE.of("one node's features"),
            relation=Relation.REPLACE,
            releases=context.rows_per_node,
        )
        # Of an entry at either end of the range, as binary ones are; hardly less than elsewhere unless epsilon is very
        # large.
        factor = step / self.step
        std = math.sqrt(max(step**2 * self.sampled / most - width**2 / 4, 0.0)) / factor
        self.reports = {
            "sampled_features": self.sampled,
            "bit_epsilon": self.bit_epsilon,
            "center": self.center,
            "step": self.step,
            "offset": center - factor * self.center,  # the mean of offset + factor x report is the true entry
            "factor": factor,
            "low": self.low,
            "high": self.high,
            "std": std,
        }
        super().__init__(context, promise)

    def facts(self) -> tuple[Fact, ...]:
        """Reports are ``center + step x`` -1, 0 or 1. ``offset + factor x`` a report has the true row as its mean, and
        ``std`` is the standard deviation of its entries: both follow from the rest."""
        return (Randomised(ROWS, MULTI_BIT, tuple(self.reports.items())),)

    def randomised(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        """Return the reports [R, F]."""
        keys = torch.rand(rows.shape, generator=rng, dtype=torch.float64)
        chosen = keys.topk(self.sampled, dim=1).indices
        share = (rows.double().cpu().gather(1, chosen).clamp(self.low, self.high) - self.low) / (self.high - self.low)
        share = share.nan_to_num(0.5)  # no bit of NaN would ever be 1
        lie = 1 / (math.exp(self.bit_epsilon) + 1)
        says_one = torch.rand(chosen.shape, generator=rng, dtype=torch.float64) < lie + share * (1 - 2 * lie)
        reports = torch.zeros(rows.shape, dtype=torch.float64).scatter_(1, chosen, 2 * says_one.double() - 1)
        return self.center + self.step * reports


@dataclass(frozen=True)
class MultiBit(Defense):
    """Clients replace each feature row by randomised bits of a few of its features. Works with every protocol.

    Attributes:
        epsilon: of all that is ever sent about one node's features, pure (delta = 0).
        low, high: range of the features; entries outside are clipped.
        sampled: features reported per row; 0 for the paper's choice.
        rectified: whether reports are scaled and shifted so that their mean is the true row.
    """

    name: ClassVar[str] = "multi-bit"
    shown: ClassVar[tuple[str, ...]] = ("epsilon", "sampled")

    epsilon: float = 8.0
    low: float = 0.0
    high: float = 1.0
    sampled: int = 0
    rectified: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epsilon, 0.0, pure=True)
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise FglauditError(
                f"features range from low to high, low < high; got {self.low:g} and {self.high:g}; use e.g. 0 and 1"
            )
        if self.sampled < 0:
            raise FglauditError(
                f"sampled is how many features a row reports, at least 1; got {self.sampled}; use 0 for the best number"
            )

    def unsupported(self, context: Context) -> str | None:
        if self.sampled > context.num_features:
            return f"{self.sampled} features cannot be sampled from {context.num_features}"
        return nothing_sent(context)

    def weakened(self, factor: float) -> MultiBit:
        """Return it with more epsilon and the best number of features for it."""
        sampled = self.sampled if factor == 1 else 0
        return dataclasses.replace(self, epsilon=weaker_budget(self.epsilon, factor), sampled=sampled)

    def bind(self, context: Context) -> DefenseSession:
        return _Session(self, context)
