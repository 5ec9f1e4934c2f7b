"""Moments of a row's first weights, in Legendre polynomials, from the latents of all rounds.

Without dropout of features the latent d of user i in round t is ``sum over the ones f of phi(w_df)``, where ``phi =
phi_idt`` is the trajectory of a weight that starts at ``w`` (:mod:`fglaudit.attacks.latents.optimizer_replay`), the
same for all its features. First weights are uniform on ``[-a, a]``, so ``phi`` is expanded in orthonormal Legendre
polynomials ``p_k(w / a)``, and the latents of all rounds are linear in the moments ``z_k = sum_f p_k(w_df / a)``, k = 0
being the number of ones; the residual of this expansion of ``phi``, which jumps where g + decay w changes its sign,
counts as noise. Plain SGD moves all weights alike and determines only k = 0 and 1. Adam with weight decay divides by a
size that depends on w, so each round is a new function of w: the higher moments are further measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from fglaudit.adversary.clipping import KnownClip
from fglaudit.attacks.latents.latent_rounds import LatentRounds
from fglaudit.attacks.latents.optimizer_replay import Replay, UserOptimizer

_POINTS = 48
"""Number of points at which trajectories are evaluated; as many moments enter the equations."""
_DIFFERENCES = 6
_JUMP = 1 / (6 * math.comb(10, 5))
"""From the mean squared sixth difference of a jump J to ``J^2 / 6`` at one of the points."""
_ROUNDS_AT_ONCE = 32
_ROUNDING = 2.0**-23
"""Rounding error of weights and latents, relative to the largest sum of absolute weights so far."""
_SURE_COUNT = 0.04
"""Standard deviation below which the number of ones is taken as the nearest integer."""


@dataclass(frozen=True)
class WeightMoments:
    """Moments k = 1 ... K of U users and D latents.

    Attributes:
        count: number of ones [U]; ``count_std`` [U] its standard deviation, 0 where it is certain.
        values: along the ``axes``, combinations of moments that are measured independently of each other [U, D, K].
        variance: of the error of ``values`` [U, D, K]; huge where nothing was measured.
        axes: orthonormal, [U, D, K, K]: ``values[..., r]`` measures ``sum_k axes[..., k, r] z_k``.
    """

    count: Tensor
    count_std: Tensor
    values: Tensor
    variance: Tensor
    axes: Tensor

    def of(self, users: Tensor) -> WeightMoments:
        """Return the moments of ``users`` (indices)."""
        return WeightMoments(*(getattr(self, f.name)[users] for f in fields(self)))


def legendre(u: Tensor, degree: int) -> Tensor:
    """Return ``sqrt(2 k + 1) P_k(u)`` for k = 0 ... ``degree`` on a new last axis.

    These are orthonormal under the uniform distribution on [-1, 1].
    """
    terms = [torch.ones_like(u), u]
    for k in range(2, degree + 1):
        terms.append(((2 * k - 1) * u * terms[-1] - (k - 1) * terms[-2]) / k)
    scale = (2 * torch.arange(degree + 1, dtype=u.dtype, device=u.device) + 1).sqrt()
    return torch.stack(terms[: degree + 1], -1) * scale


def count_spread(counts: Tensor) -> float | None:
    """Return the prior standard deviation of a row's count from known ``counts`` [A]; None for fewer than two."""
    if len(counts) < 2:
        return None
    # Few rows may agree by chance: never below half of a Poisson distribution's.
    least = 0.5 * float(counts.mean().clamp(min=1e-6).sqrt().item())
    return max(float(counts.std().item()), least)


def weight_moments(
    rounds: LatentRounds,
    optimizer: UserOptimizer,
    bound: float,
    degree: int,
    typical: float,
    std: float,
    clip: KnownClip | None,
    *,
    spread: float | None = None,
    whole: bool = True,
) -> WeightMoments:
    """Return the moments of up to ``degree``.

    Args:
        rounds: T rounds of U users with D latents, float64 tensors on one device.
        bound: a, first weights are uniform on [-a, a].
        typical: about how many ones a row has.
        std: of the noise on every latent.
        clip: latents that it may have clipped are left out; None: no clipping.
        spread: prior standard deviation of the number of ones; None: ``typical``.
        whole: whether the moment of order 0 is an integer, a number of ones.
    """
    device, (_, users, dimensions) = rounds.latents.device, rounds.latents.shape
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    grid = torch.as_tensor(points, device=device)
    terms = _POINTS - 1
    project = legendre(grid, terms) * torch.as_tensor(weights / 2, device=device)[:, None]
    replay = Replay(optimizer, (bound * grid).expand(users, dimensions, -1))
    gram = torch.zeros(users, dimensions, terms + 1, terms + 1, dtype=torch.double, device=device)
    seen = torch.zeros(users, dimensions, terms + 1, dtype=torch.double, device=device)
    largest = torch.zeros(users, dimensions, dtype=torch.double, device=device)
    lines: list[Tensor] = []
    targets: list[Tensor] = []
    for number, latent in enumerate(rounds.latents):
        present = rounds.present[number]
        largest = torch.maximum(largest, typical * replay.weights.abs().mean(-1))
        # A word whose weight lies where phi jumps is off by up to the jump; sixth differences show jumps but no smooth
        # parts.
        rough = replay.weights.diff(n=_DIFFERENCES, dim=-1).square().mean(-1) * (typical * _JUMP)
        use = present if clip is None else present & clip.unclipped(latent, std)
        scale = use[:, None] * ((_ROUNDING * largest).square() + std**2 + rough).rsqrt()
        lines.append(replay.weights @ project * scale[..., None])
        targets.append(latent * scale)
        replay.step(rounds.gradients[number][..., None], present)
        if len(lines) == _ROUNDS_AT_ONCE or number + 1 == len(rounds.latents):
            block = torch.stack(lines, 2)  # [U, D, rounds, terms + 1]
            gram += block.mT @ block
            seen += (block.mT @ torch.stack(targets, 2)[..., None])[..., 0]
            lines, targets = [], []
    return _solve(gram, seen, degree, typical, typical if spread is None else spread, whole)


def _solve(gram: Tensor, seen: Tensor, degree: int, typical: float, prior: float, whole: bool) -> WeightMoments:
    """Turn the normal equations of all moments into independent measurements of 1 ... ``degree``.

    Args:
        gram: [U, D, K', K'] of K' moments.
        seen: right-hand sides [U, D, K'].
        typical, prior: prior mean and standard deviation of the number of ones.
        whole: whether that number is an integer.
    """
    information, evidence = gram.clone(), seen.clone()
    # The other moments vary by about sqrt(n): this prior keeps them from absorbing everything.
    information[..., 1:, 1:].diagonal(dim1=-2, dim2=-1).add_(1 / typical)
    joint, shift = _marginal(information, evidence, 1)
    # Where no gradient came, nothing was measured and the estimate is the typical number.
    size = joint.sum(1)[:, 0, 0] + prior**-2
    evidence_0 = shift.sum(1)[:, 0] + typical * prior**-2
    estimate = evidence_0 / size
    spread = size.rsqrt()
    sure = (spread < _SURE_COUNT) & whole
    count = torch.where(sure, estimate.round(), estimate).clamp(min=0.0)
    # The count expected at one latent from the others and the prior; its error is no evidence on the latent's moments.
    others = size[:, None] - joint[..., 0, 0]
    expected = torch.where(sure[:, None], count[:, None], (evidence_0[:, None] - shift[..., 0]) / others)
    doubt = 1 / (gram[..., 0, 0] + torch.where(sure[:, None], torch.inf, others))
    cross = gram[..., 1:, 0]
    rest = seen[..., 1:] - cross * (expected + doubt * (seen[..., 0] - gram[..., 0, 0] * expected))[..., None]
    block = gram[..., 1:, 1:] - doubt[..., None, None] * cross[..., None] * cross[..., None, :]
    block[..., degree:, degree:].diagonal(dim1=-2, dim2=-1).add_(1 / typical)
    inner, moved = _marginal(block, rest, degree)
    strength, axes = torch.linalg.eigh(inner)
    values = (axes.mT @ moved[..., None])[..., 0] / strength.clamp(min=1e-9)
    variance = 1 / strength.clamp(min=1e-9)
    return WeightMoments(count, torch.where(sure, 0.0, spread), values, variance, axes)


def _marginal(information: Tensor, evidence: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Return information matrix and vector of the first ``keep`` unknowns, the others integrated out."""
    cross = information[..., :keep, keep:]
    rest = information[..., keep:, keep:]
    right = torch.cat([cross.mT, evidence[..., keep:, None]], -1)
    solved = torch.linalg.solve(rest, right)
    inner = information[..., :keep, :keep] - cross @ solved[..., :-1]
    return (inner + inner.mT) / 2, evidence[..., :keep] - (cross @ solved[..., -1:])[..., 0]
