"""How a defense altered messages before they were sent, as attacks account for it: cut down to a norm, and rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.payloads import Payload
from fglaudit.view import View

_MARGIN = 5.0
"""A message counts as whole when it is so many standard deviations shorter than one that was cut down: wide, as one
wrong round among all users and rounds spoils that user's estimate."""
_ORDERS = {"L1": 1.0, "L2": 2.0, "elementwise": math.inf}
"""By ``clip_norm`` among a defense's public parameters."""


@dataclass(frozen=True)
class Clipping:
    """Messages longer than ``bound`` in the norm of ``order`` (1 or 2) are scaled down to it; then noise is added. With
    the order infinity every entry is cut off at ``bound``."""

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

    def whole(self, received: Tensor, std: float) -> Tensor:
        """Return which messages ``received`` [U, D], with noise of ``std``, were surely not cut down [U]."""
        dimensions = received.shape[1]
        if std == 0:
            whole: Tensor = received.norm(p=self.order, dim=1) < 0.999 * self.bound
        elif self.order == math.inf:
            whole = received.abs().amax(1) < self.bound - _MARGIN * std
        elif self.order == 1:  # noise lengthens a message in this norm on average
            whole = received.norm(p=1, dim=1) < self.bound - _MARGIN * std * dimensions**0.5
        else:  # 5: kurtosis of Laplace noise, less one
            square, cut = received.square().sum(1) - dimensions * std**2, self.bound**2
            whole = square < cut - _MARGIN * std * (4 * cut + 5 * dimensions * std**2) ** 0.5
        return whole

    def length(self, squares: Tensor, dimensions: int) -> Tensor:
        """Return the usual norm of Gaussian messages of ``dimensions`` entries whose squared L2 norms are
        ``squares``."""
        return squares.sqrt() * ((2 * dimensions / torch.pi) ** 0.5 if self.order == 1 else 1.0)

    def effect(self, squares: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
        """Return how Gaussian messages with these squared L2 norms come out: the factor of what was there, and the
        variance of the rest of an entry, which is uncorrelated with it (Bussgang 1952; 0 where whole messages are
        scaled)."""
        if self.order != math.inf:
            return (self.bound / self.length(squares, dimensions).clamp(min=1e-30)).clamp(max=1.0), torch.zeros_like(
                squares
            )
        variance = (squares / dimensions).clamp(min=1e-30)
        reach = self.bound / (2 * variance).sqrt()
        factor = torch.erf(reach)
        tail = (
            self.bound**2 * torch.erfc(reach) - self.bound * (2 * variance / torch.pi).sqrt() * (-reach.square()).exp()
        )
        return factor, (variance * factor * (1 - factor) + tail).clamp(min=0)


def added_std(view: View, payload: type[Payload], values: Tensor | None = None) -> float:
    """Return the standard deviation of what a defense adds to an entry of ``payload``: its noise, and the error of
    rounding to levels over the range of each message, of which ``values`` [P, ...] are some."""
    noise = view.public.noise.get(payload.__name__)
    std = 0.0 if noise is None else noise.std
    facts = view.public.defense_parameters
    if "levels" not in facts or payload.__name__ not in _named(facts.get("on")) or values is None:
        return std
    flat = values.flatten(1)
    step = (flat.amax(1) - flat.amin(1)) / (int(facts["levels"]) - 1)
    return math.hypot(
        std, float((step.square().mean() / 6).sqrt().item())
    )  # f (1 - f) is 1/6 on average over positions f


def _named(on: object) -> tuple[str, ...]:
    """Return the payloads that a defense's ``on`` names, one or several."""
    return (on,) if isinstance(on, str) else tuple(on) if isinstance(on, list | tuple) else ()
