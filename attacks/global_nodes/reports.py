"""How the input layer depends on the rows that clients hold, where a defense makes them random before use.

The expected report of a row is ``(row - offset)
/ factor``, and what it varies by is independent between nodes: a mean over n nodes keeps the n-th part of its variance.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fglaudit.adversary.public_rules import noise_of_rows
from fglaudit.adversary.uploads.held import input_map
from fglaudit.facts import Randomised
from fglaudit.view import View


@dataclass(frozen=True)
class Reports:
    """How a row becomes what the input layer reads.

    Attributes:
        offset, factor: the expected report of a row is ``(row - offset) / factor``.
        variance: of an entry of a report around its expectation; 0 where rows are not random.
    """

    offset: float = 0.0
    factor: float = 1.0
    variance: float = 0.0

    @staticmethod
    def of(view: View) -> Reports:
        """Read the facts about rows."""
        noise = noise_of_rows(view)
        if noise is None:
            return Reports()
        if isinstance(noise, Randomised):
            offset, factor, std = (float(noise.parameter(name)) for name in ("offset", "factor", "std"))
            return Reports(offset, factor, std**2)
        return Reports(variance=noise.std**2)

    def layer(self, view: View, models: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights [K, F, d] and bias [K, 1, d] with which rows enter the first layer of ``models`` [K, D]."""
        weight, bias = input_map(view, models)
        return weight / self.factor, bias - self.offset / self.factor * weight.sum(1, keepdim=True)

    def covariance(self, weight: Tensor) -> Tensor:
        """Return that [K, d, d] of one node's input by the randomness of its report, ``weight`` as of :meth:`layer`."""
        return self.variance * self.factor**2 * (weight.mT @ weight)
