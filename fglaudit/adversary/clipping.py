"""Clip and rounding that a defense applied to messages before they were sent, and how attacks allow for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.adversary.public_rules import noise_std, rounding_on, stated
from fglaudit.facts import Clipped
from fglaudit.payloads import Payload
from fglaudit.view import View

_MARGIN = 5.0
"""A message counts as unclipped when it is this many standard deviations shorter than a clipped one. The margin is wide
because one wrong round among all users and rounds spoils that user's estimate."""
_ORDERS = {"L1": 1.0, "L2": 2.0, "elementwise": math.inf}
"""By :attr:`fglaudit.facts.Clipped.norm`."""


@dataclass(frozen=True)
class KnownClip:
    """Messages longer than ``bound`` in the norm of ``order`` (1 or 2) are scaled down to it; then noise is added. With
    the order infinity every entry is clipped at ``bound``."""

    bound: float
    order: float

    @staticmethod
    def of(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> KnownClip | None:
        """Return the clip of whole messages that is stated; None where messages of ``payload`` are not clipped."""
        clip = clip_on(view, payload, field, direction)
        return None if clip is None else KnownClip(float(clip.bound), _ORDERS[clip.norm])

    def unclipped(self, received: Tensor, std: float) -> Tensor:
        """Return which messages ``received`` [U, D], with noise of ``std``, were certainly not clipped [U]."""
        dimensions = received.shape[1]
        if std == 0:
            unclipped: Tensor = received.norm(p=self.order, dim=1) < 0.999 * self.bound
        elif self.order == math.inf:
            unclipped = received.abs().amax(1) < self.bound - _MARGIN * std
        elif self.order == 1:  # noise lengthens a message in this norm on average
            unclipped = received.norm(p=1, dim=1) < self.bound - _MARGIN * std * dimensions**0.5
        else:  # 5: kurtosis of Laplace noise, less one
            square, squared_bound = received.square().sum(1) - dimensions * std**2, self.bound**2
            unclipped = square < squared_bound - _MARGIN * std * (4 * squared_bound + 5 * dimensions * std**2) ** 0.5
        return unclipped

    def typical_norm(self, squares: Tensor, dimensions: int) -> Tensor:
        """Return the expected norm of Gaussian messages [...] with squared L2 norms ``squares`` [...]."""
        return squares.sqrt() * ((2 * dimensions / torch.pi) ** 0.5 if self.order == 1 else 1.0)

    def effect(self, squares: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
        """Return factor and variance [...] of clipped Gaussian messages with squared L2 norms ``squares`` [...].

        A clipped entry is the factor times the original entry plus a residual of this variance that is uncorrelated
        with it (Bussgang 1952). The variance is 0 where whole messages are scaled.
        """
        if self.order != math.inf:
            norm = self.typical_norm(squares, dimensions).clamp(min=1e-30)
            return (self.bound / norm).clamp(max=1.0), torch.zeros_like(squares)
        variance = (squares / dimensions).clamp(min=1e-30)
        reach = self.bound / (2 * variance).sqrt()
        factor = torch.erf(reach)
        tail = (
            self.bound**2 * torch.erfc(reach) - self.bound * (2 * variance / torch.pi).sqrt() * (-reach.square()).exp()
        )
        return factor, (variance * factor * (1 - factor) + tail).clamp(min=0)


def added_std(view: View, payload: type[Payload], values: Tensor | None = None, direction: str | None = None) -> float:
    """Return the standard deviation of a defense's noise and rounding error on an entry of ``payload``.

    Args:
        values: some of the messages [P, ...]; rounding is to levels over the range of each message.
    """
    std, grid = noise_std(view, payload, direction=direction), rounding_on(view, payload, direction=direction)
    if grid is None or values is None:
        return std
    flat = values.flatten(1)
    step = (flat.amax(1) - flat.amin(1)) / ((grid.levels or 2) - 1) if grid.step is None else flat.new_tensor(grid.step)
    # f (1 - f) is 1/6 on average over positions f between two levels; to the nearest level, the variance is 1/12.
    share = 1 / 6 if grid.stochastic else 1 / 12
    return math.hypot(std, float((step.square().mean() * share).sqrt().item()))


def clip_on(view: View, payload: type[Payload], field: str = "", direction: str | None = None) -> Clipped | None:
    """Return the clip of whole messages of ``payload``, None where there is none."""
    facts = stated(view, payload, field, direction)
    return next((fact for fact in facts if isinstance(fact, Clipped) and fact.per == "message"), None)
