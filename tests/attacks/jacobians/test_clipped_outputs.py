"""Clips of hidden representations: what is left, its derivative, and rows behind clipped representations."""

from __future__ import annotations

import math

import pytest
import torch

from fglaudit.adversary.clipping import KnownClip
from fglaudit.attacks.jacobians.clipped_outputs import clipped, clipped_slope, unclipped
from fglaudit.attacks.jacobians.encoder import Model
from fglaudit.attacks.jacobians.encoder_inversion import invert_encoder
from fglaudit.rng import derive

ORDERS = [1.0, 2.0, math.inf]


@pytest.mark.parametrize("order", ORDERS)
def test_the_derivative_is_that_of_the_clip(order: float) -> None:
    rng = derive(0, "derivative")
    values = torch.randn(6, 3, generator=rng, dtype=torch.double)
    clip = KnownClip(0.9 * float(values.norm(p=order, dim=1).median()), order)
    step = torch.randn(6, 3, 4, generator=rng, dtype=torch.double)
    small = 1e-7 * torch.randn(4, generator=rng, dtype=torch.double)
    moved = clipped(values + step @ small, clip) - clipped(values, clip)
    torch.testing.assert_close(clipped_slope(values, step, clip) @ small, moved, rtol=1e-5, atol=1e-12)
    kept = unclipped(clipped(values, clip), clip, 0.0)
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(clipped(values, clip)[kept], values[kept])


@pytest.mark.parametrize("order", ORDERS)
def test_rows_behind_clipped_representations(order: float) -> None:
    rng = derive(0, "clipped")
    shapes = ((6, 8), (8, 3))
    models = [Model(*(torch.randn(shape, generator=rng, dtype=torch.double) for shape in shapes)) for _ in range(30)]
    x = torch.randn(5, 6, generator=rng, dtype=torch.double)
    hidden = torch.stack([(x @ m.w1).relu() @ m.w2 for m in models], 1)
    clip = KnownClip(float(hidden.norm(p=order, dim=2).median()), order)
    sent, error = clipped(hidden, clip), torch.full((5,), 1e-9, dtype=torch.double)
    start = x + 0.1 * torch.randn(x.shape, generator=rng, dtype=torch.double)
    given = (sent, models, error, start, torch.zeros_like(x), torch.ones(5, dtype=torch.double))
    torch.testing.assert_close(invert_encoder(*given, clip=clip, steps=80).rows, x, rtol=0, atol=1e-6)
    assert float((invert_encoder(*given, steps=80).rows - x).norm()) > 0.1
