"""Rows from power moments ``E^(n) = sum_j x_j^n h_j``, n = 1 ... p, which FedGAT gives for one vector of weights.

A fallback for schemes under which a client can evaluate moments along one direction of weights only, while
:mod:`fglaudit.attacks.neighborhoods.second_moments` needs several: one direction b_2 with ``x_j = b_2 . h_j`` and the p
orders of the series suffice (equation 8). The textbook method takes the x_j from the power sums ``F^(n)`` by Newton's
identities and the rows from a Vandermonde system. The x_j are better determined by the vectors themselves: with Y0 and
Y1 the matrices of E^(1) ... E^(p-1) and E^(2) ... E^(p), they are the eigenvalues of ``Y1 Y0^+`` (Prony's problem with
vector amplitudes; of fewer features than rows the next orders stand beside each). The Vandermonde system then gives
``m_j h_j``, m_j being how many neighbours share the row, and ``m_j x_j = b_2 . (m_j h_j)`` separates them.
Neighbourhoods of p or more distinct rows are out of reach, and close x_j need more digits than float32 has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks.neighborhoods.moment_evaluation import Evaluator, MomentAttack
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, repeat_rows
from fglaudit.structure import Attention
from fglaudit.view import View

_RANK = 1e-6
"""Singular values of the moments below this share of the largest are rounding errors."""
_MISFIT = 1e-4
"""Largest error of moments predicted from the rows, relative to the largest moment."""


@dataclass(frozen=True)
class PowerMoments(MomentAttack):
    """Recover the rows of every neighbourhood from its power moments.

    Attributes:
        directions: weights tried in turn; the one whose moments are explained best counts.
    """

    name: ClassVar[str] = "power-moments"
    least: ClassVar[Mapping[str, float]] = {"directions": 1}

    directions: int = 4

    def recover(self, view: View, nodes: Tensor, evaluator: Evaluator, rng: torch.Generator) -> NeighborhoodRows:
        orders, features = view.public.structure.of(Attention).degree, view.public.num_features
        best = torch.full((len(nodes),), torch.inf, dtype=torch.double, device=evaluator.device)
        rows = torch.zeros(len(nodes), evaluator.size, features, dtype=torch.double, device=evaluator.device)
        for _ in range(self.directions):
            b = torch.randn(len(nodes), 1, features, generator=rng, dtype=torch.double).to(evaluator.device)
            found, misfit = _recover(evaluator, b, orders)
            better = misfit < best
            rows[better], best[better] = found[better], misfit[better]
        sure = (best <= _MISFIT)[:, None].expand(rows.shape[:2])
        return NeighborhoodRows.of(nodes, rows, sure, torch.zeros(rows.shape[:2]), evaluator.center())


def _windows(moments: Tensor, size: int) -> Tensor:
    """Return ``moments`` [P, p, F] with as many later orders beside each as make ``size`` columns [P, p - w + 1, w F]:
    fewer features than rows leave no matrix of their rank (a Hankel matrix in place of it)."""
    orders, features = moments.shape[1:]
    width = max(1, min(-(-size // features), orders // 2))
    return moments.unfold(1, width, 1).flatten(2)


def _recover(evaluator: Evaluator, b: Tensor, orders: int) -> tuple[Tensor, Tensor]:
    """Return rows [P, b, F] and the relative misfit [P] of the moments that they have along ``b`` [P, 1, F]."""
    b = b / evaluator.spread(evaluator.weigh(b)).clamp(min=1e-30)[:, None, None]  # now all |x_j| <= 1
    toward = evaluator.weigh(b)
    moments = torch.cat([evaluator.mixed(toward, toward, order) for order in range(orders)], 1)  # E^(1) ... E^(p)
    windows = _windows(moments, evaluator.size)
    left, value, right = torch.linalg.svd(windows[:, :-1], full_matrices=False)
    most = min(evaluator.size, value.shape[1])
    real = value[:, :most] > _RANK * value[:, :1].clamp(min=1e-30)
    inverse = torch.where(real, 1 / value[:, :most].clamp(min=1e-300), 0.0)
    shifted = inverse[..., None] * (left[..., :most].mT @ windows[:, 1:] @ right[:, :most].mT)
    x = torch.linalg.eigvals(shifted).real.clamp(-1, 1)
    # Directions that are not real have eigenvalue 0; a column of zeros leaves their rows at 0.
    powers = x[:, None] ** torch.arange(1, orders + 1, device=x.device)[:, None]
    amplitudes = torch.linalg.pinv(powers, rtol=1e-12) @ moments
    times = (amplitudes @ b.mT).squeeze(2) / torch.where(x.abs() < 1e-9, torch.inf, x)
    whole = times.round().clamp(0, evaluator.size).long()
    rows = repeat_rows(amplitudes / whole.clamp(min=1)[..., None], whole, evaluator.size)
    share = rows @ b.mT
    exponents = torch.arange(1, orders + 1, device=x.device)
    predicted = (share**exponents).mT @ rows
    misfit = (predicted - moments).abs().amax((1, 2)) / moments.abs().amax((1, 2)).clamp(min=1e-30)
    return rows, misfit
