"""A map of single rows that was learned from pairs: what was sent [n, D] -> what it was made of [n, D]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

RowMap = Callable[[Tensor], Tensor]
Learner = Callable[[Tensor, Tensor], RowMap | None]
"""From (plain, sent) [n, D] to a map of what was sent; None where it has nothing to say."""
WIDE = 512
"""Columns beyond which a dear learner is asked only if there is a sign of what it looks for."""
MOST_COLUMNS = 4096
"""Columns of the widest rows whose columns are told apart, or mixed."""


@dataclass(frozen=True)
class Learned:
    """A learned map with its error.

    Attributes:
        error: mean square of what it leaves, relative to that of the rows around their mean; on pairs not learned from.
    """

    name: str
    error: float
    apply: RowMap


def identity(sent: Tensor) -> Tensor:
    """Return what was sent."""
    return sent


def relative_error(plain: Tensor, cleaned: Tensor) -> float:
    """Return the mean square of ``cleaned - plain`` relative to that of ``plain`` around its column means."""
    spread = (plain - plain.mean(0)).square().mean() if len(plain) > 1 else plain.square().mean()
    return float(((cleaned - plain).square().mean() / spread.clamp(min=1e-300)).item())
