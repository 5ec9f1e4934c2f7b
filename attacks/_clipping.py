"""A defense that cuts messages down to a norm, as the attacks account for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.view import View

_MARGIN = 5.0
"""A message counts as whole when it is so many standard deviations shorter than one that was cut down: wide, as one wrong round
among all users and rounds spoils that user's estimate."""


@dataclass(frozen=True)
class Clipping:
    """Messages longer than ``bound`` in the norm of ``order`` (1 or 2) are scaled down to it; then noise is added."""

    bound: float
    order: int

    @staticmethod
    def of(view: View) -> Clipping | None:
        """Read the defense's public parameters; None without clipping."""
        parameters = view.public.defense_parameters
        if parameters.get("clip") is None:
            return None
        return Clipping(float(parameters["clip"]), 1 if parameters.get("clip_norm") == "L1" else 2)

    def whole(self, received: Tensor, std: float) -> Tensor:
        """Return which messages ``received`` [U, D], with noise of ``std``, were surely not cut down [U]."""
        dimensions = received.shape[1]
        if std == 0:
            whole: Tensor = received.norm(p=self.order, dim=1) < 0.999 * self.bound
        elif self.order == 1:  # noise lengthens a message in this norm on average
            whole = received.norm(p=1, dim=1) < self.bound - _MARGIN * std * dimensions**0.5
        else:  # 5: kurtosis of Laplace noise, less one
            square, cut = received.square().sum(1) - dimensions * std**2, self.bound**2
            whole = square < cut - _MARGIN * std * (4 * cut + 5 * dimensions * std**2) ** 0.5
        return whole

    def length(self, squares: Tensor, dimensions: int) -> Tensor:
        """Return the usual norm of Gaussian messages of ``dimensions`` entries whose squared L2 norms are ``squares``."""
        return squares.sqrt() * ((2 * dimensions / torch.pi) ** 0.5 if self.order == 1 else 1.0)
