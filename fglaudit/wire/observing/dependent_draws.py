"""Do parts of a message share noise? Many draws of one message show what one draw does not.

Rows, columns, and halves, quarters and eighths of a message are compared with one another, whatever the rotation
between them (:mod:`fglaudit.wire.observing.rotated_noise`). Besides, no combination of rows, of columns, of a row's own
numbers or of few numbers of a message may be bare, and no wave along all of them, their sum included.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.facts.residuals import DROWNED, Shape, Spending, leaves_a_direction, normal_scores
from fglaudit.wire.observing.fourier_dependence import fourier_dependence
from fglaudit.wire.observing.rotated_noise import alike

_FEWEST = 12
"""Draws below which nothing is asked."""
_MOST_BLOCKS, _MOST_DRAWS = 128, 128
"""Blocks that are compared with one another, and draws of them: ever more of both cost more than they tell."""
_MOST_CUBES = 2**26
_PARTS = (2, 4, 8)


def dependent_draws(draws: Tensor, slack: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Return in words why ``draws`` [D, n, F] of stated noise, the same message each time, are not independent numbers,
    or None."""
    count, rows, width = draws.shape
    loose = float(slack.max()) / shape.scale if slack.numel() else 0.0
    if count < _FEWEST or draws.numel() == 0 or loose > DROWNED or not bool(draws.isfinite().all()):
        return None
    z = normal_scores(draws, shape)
    across, down = z.permute(1, 0, 2), z.permute(2, 0, 1)  # a block a row, a block a column
    for name, blocks in (("rows", across), ("columns", down)):
        if _alike(_some(blocks, spending), loose, spending):
            return f"noise of {name} that is made of other {name}' noise"
    for parts in _PARTS:
        for name, blocks in (("rows", across), ("columns", down)):
            if (size := len(blocks) // parts) > 1:
                joined = blocks[: parts * size].reshape(parts, size, count, -1).transpose(1, 2).flatten(2)
                if _alike(joined, loose, spending):
                    return f"noise of a part of all {name} that is made of another part's"
    unit = Shape("gaussian", 1.0, shape.cdf)
    for flat in (across.reshape(rows, -1), down.reshape(width, -1), z.flatten(1)):
        if (wrong := leaves_a_direction(flat, torch.full_like(flat[:1, :1], loose), unit, spending)) is not None:
            return wrong
    if shape.name == "gaussian" and _bare_in_a_row(across, loose, spending):
        return "noise that leaves a direction of a row alone"
    if _bare_wave(z.flatten(1), spending):
        return "noise that leaves a wave along a message alone, such as the sum of its numbers"
    return fourier_dependence(draws, loose, shape, spending)


def _some(blocks: Tensor, spending: Spending) -> Tensor:
    if len(blocks) <= _MOST_BLOCKS:
        return blocks
    return blocks[torch.randperm(len(blocks), generator=spending.rng)[:_MOST_BLOCKS].to(blocks.device)]


def _alike(blocks: Tensor, loose: float, spending: Spending) -> bool:
    """Whether inner products over draws of any two ``blocks`` [B, D, m] are more alike than independent noise's."""
    if len(blocks) < 2:
        return False
    blocks = blocks[:, :_MOST_DRAWS]
    found = alike(blocks, blocks, loose)
    found.fill_diagonal_(0)
    return bool((found > spending.next() + 2 * math.log(len(blocks))).any())


def _bare_in_a_row(rows: Tensor, loose: float, spending: Spending) -> bool:
    """Whether a combination of the numbers of one of ``rows`` [n, D, F] has no noise (Davidson and Szarek 2001)."""
    _, count, width = rows.shape
    least = math.sqrt(count) - math.sqrt(width) - math.sqrt(2 * (spending.next() + math.log(len(rows))))
    least -= loose * math.sqrt(count * width)
    if width < 2 or least <= 0:
        return False
    rows = rows[: max(1, _MOST_CUBES // width**3)]
    smallest = torch.linalg.eigvalsh(rows.mT @ rows).amin(1).clamp(min=0).sqrt()
    return bool((smallest < least).any())


def _bare_wave(draws: Tensor, spending: Spending) -> bool:
    """Whether a wave along the numbers of ``draws`` [D, m] has no noise: of independent numbers all waves are normal,
    each with half of the variance in its cosine and in its sine, but for the sum and the fastest wave. What arithmetic
    adds makes none of them smaller."""
    width = draws.shape[1]
    if width < 2:
        return False
    power = torch.fft.rfft(draws, norm="ortho").abs().square().sum(0)
    half = torch.full_like(power, len(draws))
    half[0] /= 2
    half[-1] /= 2 if width % 2 == 0 else 1
    chance = torch.special.gammainc(half, power * half / len(draws))
    return bool((chance < math.exp(-spending.next()) / len(power)).any())


def bare_sum(one: Tensor, other: Tensor, shape: Shape, spending: Spending) -> str | None:
    """Return why two draws of noise [n, F], of any size, have none in the sum of all numbers, or None: sums of many are
    nearly normal, and two so small have a chance of at most their squares."""
    variance = one.numel() * shape.scale**2 * {"gaussian": 1.0, "laplace": 2.0}.get(shape.name, 0.0)
    squares = float(one.sum().square() + other.sum().square())
    if one.numel() < _FEWEST or squares >= variance * math.exp(-spending.next()):
        return None
    return "noise that leaves the sum of all numbers alone"
