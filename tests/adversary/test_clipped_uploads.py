"""Mean, slope and error of clipped values, against draws."""

from __future__ import annotations

import pytest
import torch

from fglaudit.adversary.uploads.clipped_uploads import UploadClip
from fglaudit.rng import derive


@pytest.mark.parametrize("clip", [UploadClip(), UploadClip(bound=0.5), UploadClip(length=3.0)], ids=str)
def test_a_clip_answers_as_in_a_simulation(clip: UploadClip) -> None:
    rng = derive(0, "clip")
    mean, std = 0.5 * torch.randn(1, 2, 40, generator=rng).double(), 0.1 + torch.rand(1, 2, 40, generator=rng).double()
    drawn = mean + std * torch.randn(40000, 2, 40, generator=rng, dtype=torch.double)
    seen = drawn if clip.bound is None else drawn.clamp(-clip.bound, clip.bound)
    if clip.length is not None:
        seen = drawn * (clip.length / drawn.abs().sum((1, 2), keepdim=True)).clamp(max=1)
    response = clip.response(mean, std)
    slope = ((seen - seen.mean(0)) * (drawn - drawn.mean(0))).mean(0) / drawn.var(0)
    rest = seen.var(0) - slope.square() * drawn.var(0)
    near = 0.02 if clip.length is None else 0.03  # the length itself varies a little
    assert (response.mean[0] - seen.mean(0)).abs().max() < near
    assert (response.slope[0] - slope).abs().max() < near
    if clip.length is None:
        assert (response.rest[0] - rest).abs().max() < near
    assert response.square() == pytest.approx(float(seen.square().mean()), rel=0.05)
