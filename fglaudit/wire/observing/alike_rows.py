"""Is the noise of one row made of another's? Rows that come twice, rows of one length, rows of one node that cancel.

A row that seeds its own noise can be guessed: of some thousand rows two have the same one of 2^16 seeds, and of some
ten thousand the same one of 2^24. A row whose noise is another's under a rotation that everybody knows is as long as
the other to the last digit. And noise that adds up to nothing over the rows of a node leaves their sum bare. All of
this is seen in one draw; ``dependent_draws.py`` looks at what takes many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fglaudit.facts.residuals import DROWNED, PEAK, Shape, Spending, alike_sizes, strange_size

_WIDTH = 8
"""Numbers of a row that are compared with those of another."""
_MOST_PARTS = 2**18
_NEIGHBOURS = 3
"""How many of the next in size a part is compared with: others may lie between two that are the same."""
_DENSEST = 0.8
"""Largest density of the length of a standard normal vector, of any width."""
_MOST_LENGTHS = 4096


def alike_rows(noise: Tensor, slack: Tensor, shape: Shape, groups: Iterable[Tensor], spending: Spending) -> str | None:
    """Return in words why rows of ``noise`` [n, D] are not each drawn afresh, or None.

    Args:
        groups: ids [n] of what rows are about, each of which may have several rows.
    """
    near = float(slack.max()) if slack.numel() else 0.0
    if noise.numel() == 0 or not bool(noise.isfinite().all()) or near > DROWNED * shape.scale:
        return None
    return (
        same_rows(noise, near, shape, spending)
        or _same_lengths(noise, near, shape, spending)
        or _cancels(noise, slack, shape, groups, spending)
    )


def same_rows(noise: Tensor, near: float, shape: Shape, spending: Spending) -> str | None:
    """Look for two parts of rows that are alike in every number, whatever the signs; ``near``: what arithmetic may have
    added to one."""
    width = min(_WIDTH, noise.shape[1])
    per_row = max(1, min(noise.shape[1] // width, _MOST_PARTS // len(noise)))
    parts = noise[:_MOST_PARTS, : per_row * width].abs().reshape(-1, width)
    one = 8 * PEAK.get(shape.name, 0.8) * max(near, 2.0**-24 * shape.scale) / shape.scale
    if 2 * math.log(len(parts)) + width * math.log(one) > -spending.next():
        return None  # too few numbers: chance makes two of them alike
    parts = parts[parts[:, 0].argsort()]
    for lag in range(1, min(_NEIGHBOURS, len(parts) - 1) + 1):
        if bool(((parts[lag:] - parts[:-lag]).abs().amax(1) <= 2 * near).any()):
            return f"noise of few seeds: rows came twice among {len(noise)}"
    return None


def _same_lengths(noise: Tensor, near: float, shape: Shape, spending: Spending) -> str | None:
    if shape.name != "gaussian" or noise.shape[1] < 2:
        return None
    lengths = torch.linalg.vector_norm(noise[:_MOST_LENGTHS], dim=1)
    count = alike_sizes(lengths, 2 * near * math.sqrt(noise.shape[1]), _DENSEST / shape.scale, spending)
    return f"noise used twice: {count} of {len(lengths)} rows are as long as another" if count else None


def _cancels(noise: Tensor, slack: Tensor, shape: Shape, groups: Iterable[Tensor], spending: Spending) -> str | None:
    """Look at the sums of rows that share an id: independent Gaussian noise adds up to Gaussian noise."""
    if shape.name != "gaussian":
        return None
    for ids in groups:
        _, place, count = torch.unique(ids, return_inverse=True, return_counts=True)
        several = count > 1
        if not bool(several.any()):
            continue
        # Blocks of a size: each must be as large as that many draws are.
        for size in count[several].unique().tolist():
            chosen = (count == size).nonzero()[:, 0]
            sums, loose = (
                torch.zeros(len(count), noise.shape[1], dtype=noise.dtype, device=noise.device).index_add(0, place, t)
                for t in (noise, slack.expand_as(noise))
            )
            part = sums[chosen] / math.sqrt(size), loose[chosen] / math.sqrt(size)
            if (wrong := strange_size(*part, shape, spending)) is not None:
                return f"over {size} rows of one id: {wrong}"
    return None
