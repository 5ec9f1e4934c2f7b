"""Numbers of codes are those of ``torch.unique``, whether codes are sorted or marked."""

from __future__ import annotations

import pytest
import torch

from fglaudit.attacks.sums.bits.numbering import numbered


@pytest.mark.parametrize("below", [7, 60, 10_000])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_numbers_are_those_of_unique(below: int, count: int) -> None:
    codes = torch.randint(below, (count,), generator=torch.Generator().manual_seed(below))
    values, places = numbered(codes, below)
    expected, inverse = torch.unique(codes, return_inverse=True)
    assert torch.equal(values, expected) and torch.equal(places, inverse)
    assert torch.equal(values[places], codes)
