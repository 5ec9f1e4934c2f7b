"""What a defense that clips and samples single examples makes of a step's gradients, before any noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from fglaudit.facts import Clipped, Fact, Sampled
from fglaudit.facts.explaining import ROUNDOFF
from fglaudit.rng import unforeseen

_COLUMNS = 512
"""Of a gradient, where examples are sampled and the sample must be projected out."""


def expected_sum(gradients: Tensor, stated: Sequence[Fact]) -> tuple[Tensor, Tensor]:
    """Return the sum [K, D] that the facts on single examples make of ``gradients`` [E, K, D], and its slack; for
    sampled ones instead the examples [E, K, D'] of some columns."""
    scale = gradients.new_ones(gradients.shape[:2])
    for fact in stated:
        if isinstance(fact, Clipped) and fact.per == "example" and fact.norm != "elementwise":
            norm = torch.linalg.vector_norm(gradients, ord=2 if fact.norm == "L2" else 1, dim=2) * scale
            scale = scale * torch.where(norm.isfinite(), fact.bound / norm.clamp(min=fact.bound), 0.0)
    if bool((scale == 0).any()):
        gradients = torch.where((scale > 0).unsqueeze(2), gradients, 0.0)
    if any(isinstance(fact, Sampled) for fact in stated):
        return gradients[:, :, _some(gradients.shape[2])] * scale.unsqueeze(2), scale
    total = torch.einsum("ek,ekd->kd", scale, gradients)
    size = torch.linalg.vector_norm(scale.unsqueeze(2) * gradients, dim=0) if len(gradients) else total.abs()
    return total, size * len(gradients) ** 0.5


def outside_samples(examples: Tensor, after: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the part of ``after`` [K, D] that no sum of ``examples`` [E, K, D'] accounts for, in an orthonormal basis
    [K, D' - E], and its slack; None where there is none."""
    count, _, width = examples.shape
    if width <= count:
        return None
    basis = torch.linalg.qr(examples.double().permute(1, 2, 0), mode="complete").Q[:, :, count:]
    outside = torch.einsum("kdf,kd->kf", basis, after[:, _some(after.shape[1])].double())
    size = examples.double().norm(dim=2).sum(0).unsqueeze(1)
    return outside, 64 * ROUNDOFF.get(after.dtype, 0.0) * size


@cache
def _some(width: int) -> Tensor:
    """Return ``_COLUMNS`` of ``width`` columns, or all of fewer: which ones nobody knows, since noise may be right in
    those that are looked at alone. They stay the same in a process, so that calls can be compared."""
    return torch.randperm(width, generator=unforeseen())[:_COLUMNS].sort().values
