"""Second moments: a client evaluates exact moments of its neighbourhoods under any masking; two of them give all rows.

To train, a client computes ``E^(n)(b) = sum_j (b' h_j)^n h_j`` (equation 8, with b1 = 0) for weights b of its own
choice. Polarised over b, the first two orders are ``H'H`` and ``H' diag(H a) H``, where the rows of H are the h_j; on
the row space of H both are diagonal in one basis, which a symmetric eigenproblem gives (Jennrich's simultaneous
diagonalisation). This uses no property of the masks: every scheme that evaluates these moments exactly reveals the
rows. An eigenvector g is only known up to its length, which ``g' a = s sqrt(m) lambda`` fixes: lambda is the eigenvalue
``a' h``, s a sign and m how many neighbours share the row h. So equal rows merge and are separated again.

Where distinct rows of one neighbourhood are linearly dependent, higher orders separate them: ``(h_j, lambda_j h_j,
lambda_j^2 h_j)`` are independent where the lambda_j differ, and their moments are mixed moments ``sum_j (a' h_j)^n (b'
h_j) h_j`` of orders up to six. This is better conditioned than power sums along one direction, solved by Newton's
identities and a Vandermonde system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.attacks.neighborhoods.moment_evaluation import Evaluator, MomentAttack
from fglaudit.attacks.neighborhoods.recovered_rows import NeighborhoodRows, repeat_rows
from fglaudit.view import View

_RANK = 1e-4
"""Singular values of first moments below this share of the largest are rounding errors."""
_MISFIT = 1e-4
"""Largest error of moments predicted from the rows, relative to the largest moment."""
_SPARE = 6
"""Probes beyond the number of rows: without them a direction of the row space would be missed at times."""
_CLOSE = 1e-8
_RANK_HIGHER = 1e-6
"""As ``_RANK``, for second moments of higher orders."""


@dataclass(frozen=True)
class SecondMoments(MomentAttack):
    """Recover the rows of every neighbourhood from exact moments.

    Attributes:
        directions: directions ``a`` of which the one with the best separated eigenvalues is used.
    """

    name: ClassVar[str] = "second-moments"
    least: ClassVar[Mapping[str, float]] = {"directions": 1}

    directions: int = 4

    def recover(self, view: View, nodes: Tensor, evaluator: Evaluator, rng: torch.Generator) -> NeighborhoodRows:
        count, size = len(nodes), evaluator.size
        probes = torch.randn(count, size + _SPARE, view.public.num_features, generator=rng, dtype=torch.double)
        draw = torch.randn(self.directions, count, size, generator=rng, dtype=torch.double)
        return _recover(nodes, evaluator, probes.to(evaluator.device), draw.to(evaluator.device))


def _recover(nodes: Tensor, evaluator: Evaluator, probes: Tensor, draw: Tensor) -> NeighborhoodRows:
    """Return the rows [P, b, F] behind the moments.

    Args:
        nodes: [P].
        probes: directions in feature space on which the row space is learned and the result checked [P, q, F], q > b.
        draw: coefficients of the directions a along the row space [directions, P, b].
    """
    probed = evaluator.weigh(probes)
    first, second = evaluator.moments(probed)
    _, value, basis = torch.linalg.svd(first, full_matrices=False)
    rank = (value > _RANK * value[:, :1].clamp(min=1e-30)).sum(1).clamp(max=evaluator.size)
    rows = torch.zeros_like(first[:, : evaluator.size])
    for size in [int(r) for r in torch.unique(rank).tolist() if r > 0]:
        chosen = (rank == size).nonzero().squeeze(1)
        rows[chosen] = _jennrich(evaluator.at(chosen), basis[chosen, :size], draw[:, chosen, :size])
    misfit = _misfit(rows, probes, first, second)
    for depth in (1, 2):
        failed = (misfit > _MISFIT).nonzero().squeeze(1)
        width = int(rank[failed].max().item()) if len(failed) else 0
        for alpha in draw[:, failed, :width] if len(failed) else ():
            again = _by_higher_orders(evaluator.at(failed), basis[failed, :width], alpha, depth)
            better = _misfit(again, probes[failed], first[failed], second[failed])
            use = better < misfit[failed]
            rows[failed[use]], misfit[failed[use]] = again[use], better[use]
    sure = (misfit <= _MISFIT)[:, None].expand(rows.shape[:2])
    return NeighborhoodRows.of(nodes, rows, sure, torch.zeros(rows.shape[:2]), evaluator.center())


def _jennrich(evaluator: Evaluator, basis: Tensor, draw: Tensor) -> Tensor:
    """Return rows [P, b, F] of neighbourhoods whose H has the row space ``basis`` [P, r, F]."""
    along = evaluator.weigh(basis)
    first, own = evaluator.moments(along)
    value, vector = torch.linalg.eigh(first @ basis.mT)
    value = value.clamp(min=1e-12 * value[:, -1:].clamp(min=1e-30))
    whiten, color = vector * value.rsqrt()[:, None], vector.mT * value.sqrt()[..., None]
    best, spread = (
        torch.zeros_like(basis),
        torch.full((len(basis),), -torch.inf, dtype=torch.double, device=basis.device),
    )
    for alpha in draw:
        toward = torch.einsum("pk,pk...->p...", alpha, along)[:, None]
        polar = (evaluator.moments(along + toward)[1] - own - evaluator.moments(toward)[1]) / 2
        mixed = whiten.mT @ (polar @ basis.mT) @ whiten
        eigenvalue, eigenvector = torch.linalg.eigh((mixed + mixed.mT) / 2)
        scaled = eigenvector.mT @ color  # rows s sqrt(m) h in the basis
        length = torch.einsum("pkr,pr->pk", scaled, alpha) / torch.where(eigenvalue == 0, 1e-30, eigenvalue)
        zero = torch.zeros_like(eigenvalue[:, :1])
        gaps = torch.cat([eigenvalue, zero], 1).sort(dim=1).values.diff(dim=1) / eigenvalue.abs().amax(1, keepdim=True)
        quality = (gaps + _CLOSE).log().sum(1)
        rows = repeat_rows(
            scaled @ basis / length[..., None], length.square().round().clamp(1, evaluator.size).long(), evaluator.size
        )
        better = quality > spread
        if best.shape != rows.shape:
            best = torch.zeros_like(rows)
        best = torch.where(better[:, None, None], rows, best)
        spread = torch.where(better, quality, spread)
    return best


def _misfit(rows: Tensor, probes: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the largest relative error [P] of the moments that ``rows`` would have at ``probes``."""
    product = probes @ rows.mT
    errors = [
        (power @ rows - moment).abs().amax((1, 2)) / moment.abs().amax((1, 2)).clamp(min=1e-30)
        for power, moment in ((product, first), (product.square(), second))
    ]
    return torch.maximum(*errors)


def _by_higher_orders(evaluator: Evaluator, basis: Tensor, alpha: Tensor, depth: int) -> Tensor:
    """Return rows [P, b, F] by simultaneous diagonalisation of the moments of
    ``(h_j, lambda_j h_j, ..., lambda_j^depth h_j)``.

    Args:
        basis: the row space of H [P, r, F]; may hold more directions than that.
        alpha: coefficients of the direction a along it [P, r].
    """
    along = evaluator.weigh(basis)
    toward = torch.einsum("pk,pk...->p...", alpha, along)[:, None]
    scale = evaluator.spread(toward).clamp(min=1e-30)
    alpha, toward = alpha / scale[:, None], toward / scale.view(-1, *[1] * (toward.dim() - 1))
    grams = [evaluator.mixed(along, toward, order) @ basis.mT for order in range(2 * depth + 2)]
    still, once = (
        torch.cat([torch.cat([grams[m + n + shift] for n in range(depth + 1)], 2) for m in range(depth + 1)], 1)
        for shift in (0, 1)
    )
    value, vector = torch.linalg.eigh((still + still.mT) / 2)
    real = value > _RANK_HIGHER * value[:, -1:].clamp(min=1e-30)
    root = torch.where(real, value.clamp(min=1e-300).sqrt(), 0.0)
    whiten = vector * torch.where(real, 1 / root.clamp(min=1e-150), 0.0)[:, None]
    mixed = whiten.mT @ once @ whiten
    eigenvalue, eigenvector = torch.linalg.eigh((mixed + mixed.mT) / 2)
    scaled = (eigenvector.mT @ (vector.mT * root[..., None]))[..., : basis.shape[1]]
    found = scaled.norm(dim=2) > 1e-3 * scaled.norm(dim=2).amax(1, keepdim=True)
    length = torch.einsum("pkr,pr->pk", scaled, alpha) / torch.where(eigenvalue == 0, 1e-30, eigenvalue)
    times = torch.where(found, length.square().round().clamp(1, evaluator.size), 0.0).long()
    rows = torch.where(found[..., None], scaled @ basis / torch.where(found, length, 1.0)[..., None], 0.0)
    return repeat_rows(rows, times, evaluator.size)
