"""Chebyshev series of GAT's attention function ``exp(LeakyReLU(x))`` on [-R, R] (FedGAT, equations 5 and 6).

The series is evaluated by the recurrence ``T_{n+1}(t) = 2 t T_n(t) - T_{n-1}(t)`` with ``t = x / R``, on numbers and on
matrices; the power series that the paper converts to loses precision by cancellation in float32 at high degree. Because
of LeakyReLU's kink at 0 the largest error falls only like 1 / degree. Outside [-R, R] the series grows like
``(2 x / R)^degree`` and is meaningless.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError

NEGATIVE_SLOPE = 0.2
"""Of LeakyReLU, as in the original GAT."""

QUADRATURE_POINTS = 2**14
LEAST_SMOOTH = -0.28
"""Where :func:`smooth_function` is still positive."""


def attention_function(x: Tensor) -> Tensor:
    """Return ``exp(LeakyReLU(x))``, elementwise."""
    return functional.leaky_relu(x, NEGATIVE_SLOPE).exp()


def smooth_function(x: Tensor) -> Tensor:
    """Return ``0.2 x + 0.8 log(1 + exp(4 x)) / 4``, elementwise: a LeakyReLU without the kink, and no exponential."""
    return NEGATIVE_SLOPE * x + (1 - NEGATIVE_SLOPE) / 4 * functional.softplus(4 * x)


@dataclass(frozen=True)
class Series:
    """``sum_n coefficients[n] T_n(x / domain)``.

    Attributes:
        coefficients: of T_0 ... T_p.
        domain: R; the series is valid for arguments in [-R, R].
        least: of the function there.
    """

    coefficients: tuple[float, ...]
    domain: float
    least: float

    @staticmethod
    def of(function: Callable[[Tensor], Tensor], degree: int, domain: float) -> Series:
        """Return the truncated series of ``function`` (elementwise, float64) on [-domain, domain].

        Raises:
            FglauditError: degree below 1, or a domain that is not positive and finite.
        """
        if degree < 1:
            raise FglauditError(
                f"a Chebyshev series of the attention scores needs degree >= 1; got {degree}; use for example 16"
            )
        if not 0 < domain < math.inf:
            raise FglauditError(
                f"the series' domain [-R, R] needs a finite R > 0; got {domain:g}; the norm bounds allow R = 2"
            )
        angles = (torch.arange(QUADRATURE_POINTS, dtype=torch.float64) + 0.5) * (math.pi / QUADRATURE_POINTS)
        values = function(domain * angles.cos())
        orders = torch.arange(degree + 1, dtype=torch.float64).unsqueeze(1)
        coefficients = (orders * angles).cos() @ values * (2 / QUADRATURE_POINTS)
        coefficients[0] /= 2
        ends = function(torch.tensor([-domain, domain], dtype=torch.float64))
        return Series(tuple(coefficients.tolist()), domain, float(torch.cat([values, ends]).min().item()))

    @property
    def at_zero(self) -> float:
        """The series' value at 0."""
        return sum(c * (1 - n % 4) for n, c in enumerate(self.coefficients) if n % 2 == 0)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate elementwise."""
        t = x / self.domain
        before, now = torch.ones_like(t), t
        total = self.coefficients[0] + self.coefficients[1] * t
        for coefficient in self.coefficients[2:]:
            before, now = now, 2 * t * now - before
            total = total + coefficient * now
        return total

    def count_outside(self, x: Tensor) -> Tensor:
        """Return how many of the arguments lie outside [-R, R], rounding aside."""
        return (x.abs() > self.domain * (1 + 1e-4)).sum()

    def row_times(self, row: Tensor, matrix: Tensor) -> Tensor:
        """Return ``row' f(matrix)`` without forming ``f(matrix)``.

        Args:
            row: [..., n].
            matrix: [..., n, n].
        """
        t = matrix / self.domain
        before, now = row, (row.unsqueeze(-2) @ t).squeeze(-2)
        total = self.coefficients[0] * before + self.coefficients[1] * now
        for coefficient in self.coefficients[2:]:
            before, now = now, 2 * (now.unsqueeze(-2) @ t).squeeze(-2) - before
            total = total + coefficient * now
        return total


@cache
def attention_series(degree: int, domain: float, smooth_over: int = 0) -> Series:
    """Return the series of ``exp(LeakyReLU(x))``, or of ``smooth_function(x / smooth_over)`` where that is not 0."""
    if smooth_over:
        return Series.of(lambda x: smooth_function(x / smooth_over), degree, domain)
    return Series.of(attention_function, degree, domain)


def require_smooth_domain(protocol: str, graph: str, domain: float, features: int) -> None:
    """Raise :class:`FglauditError` where the smooth function is not positive for all scores in [-domain, domain]."""
    if domain > -LEAST_SMOOTH * features:
        raise FglauditError(
            f"{protocol} with source: code weighs by a function that is positive above {LEAST_SMOOTH:g} times the"
            f" number of features; {graph!r} has {features}, and scores reach -{domain:g};"
            f" use a domain of at most {-LEAST_SMOOTH * features:.3g}, or source: paper"
        )
