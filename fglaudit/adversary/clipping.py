"""Clip and rounding that a defense applied to messages before they were sent, and how attacks allow for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.payloads import Payload
from fglaudit.view import View

_MARGIN = 5.0
"""A message counts as unclipped when it is this many standard deviations shorter than a clipped one. The margin is wide
because one wrong round among all users and rounds spoils that user's estimate."""
_ORDERS = {"L1": 1.0, "L2": 2.0, "elementwise": math.inf}
"""By ``clip_norm`` among a defense's public parameters."""


@dataclass(frozen=True)
class Clipping:
    """Messages longer than ``bound`` in the norm of ``order`` (1 or 2) are scaled down to it; then noise is added. With
    the order infinity every entry is clipped at ``bound``."""

    bound: float
    order: float

    @staticmethod
    def of(view: View, payload: type[Payload]) -> Clipping | None:
        """Read the defense's public parameters; None where messages of ``payload`` are not clipped."""
        facts = view.public.defense_parameters
        if facts.get("clip_norm") not in _ORDERS or payload.__name__ not in _named(facts.get("on")):
            return None
        clip = facts["clip"]
        bound = (
            clip
            if isinstance(clip, int | float)
            else dict(zip(_named(facts["on"]), clip, strict=True))[payload.__name__]
        )
        return Clipping(float(bound), _ORDERS[facts["clip_norm"]])

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


def added_std(view: View, payload: type[Payload], values: Tensor | None = None) -> float:
    """Return the standard deviation of a defense's noise and rounding error on an entry of ``payload``.

    Args:
        values: some of the messages [P, ...]; rounding is to levels over the range of each message.
    """
    noise = view.public.noise.get(payload.__name__)
    std = 0.0 if noise is None else noise.std
    facts = view.public.defense_parameters
    if "levels" not in facts or payload.__name__ not in _named(facts.get("on")) or values is None:
        return std
    flat = values.flatten(1)
    step = (flat.amax(1) - flat.amin(1)) / (int(facts["levels"]) - 1)
    # f (1 - f) is 1/6 on average over positions f between two levels.
    return math.hypot(std, float((step.square().mean() / 6).sqrt().item()))


def _named(on: object) -> tuple[str, ...]:
    """Return the payloads that a defense's ``on`` names, one or several."""
    return (on,) if isinstance(on, str) else tuple(on) if isinstance(on, list | tuple) else ()
