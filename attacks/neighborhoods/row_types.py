"""Which recovered rows are the same: a row that occurs in several neighbourhoods identifies its node."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.graph import components

_SAME = 1e-3
"""Relative distance below which two noise-free real-valued rows are one."""
_ROWS_AT_ONCE = 2048
_DROWNED = 3.0
"""Where distances vary by more than this share of the rows' own squared length, they tell nothing: each row stands
alone."""


def equal_bits(bits: Tensor) -> Tensor:
    """Return a number per row of ``bits`` [R, F] that equal rows, and no others, share; numbers are 0, 1, ..."""
    if len(bits) == 0:
        return torch.empty(0, dtype=torch.long)
    number: Tensor = torch.unique(bits.to(torch.uint8), dim=0, return_inverse=True)[1]
    return number


def close_rows(rows: Tensor, std: Tensor) -> Tensor:
    """Return a number per row of ``rows`` [R, F], shared by rows that differ by no more than rounding and noise.

    Args:
        std: standard deviation of the noise on every entry of a row [R].
    """
    count, features = rows.shape
    if count == 0:
        return torch.empty(0, dtype=torch.long)
    size = rows.square().sum(1)
    noise = std.square().to(rows.dtype)
    signal = (size - noise * features).clamp(min=0)
    links = []
    for low in range(0, count, _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        spread = noise[part, None] + noise
        slack = 4 * (2 * features) ** 0.5 * spread  # four standard deviations of a squared distance of pure noise
        limit = spread * features + torch.minimum(slack, 0.3 * (signal[part, None] + signal))
        squared = size[part, None] + size - 2 * rows[part] @ rows.T
        close = squared <= limit + 1e-5 * torch.maximum(size[part, None], size.max())
        close &= slack <= _DROWNED * (signal[part, None] + signal)
        links.append(close.nonzero() + torch.tensor([low, 0]))
    first, second = torch.cat(links).T
    exact = noise[first] + noise[second] == 0
    distance = (rows[first[exact]] - rows[second[exact]]).norm(dim=1)
    scale = (
        torch.maximum(size[first[exact]], size[second[exact]]).sqrt().clamp(min=0.01 * float(size.max().sqrt().item()))
    )
    keep = torch.ones_like(exact)
    keep[exact] = distance <= _SAME * scale
    return components(torch.stack([first[keep], second[keep]]), count)
