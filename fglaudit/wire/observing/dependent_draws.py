"""Do parts of a message share noise? Many draws of one message show what one draw does not.

Independent standard normal blocks a, b of m numbers, D draws each, have inner products over pairs of draws
K(d, e) = <a_d, a_e> that have nothing to do with each other. If b is a under a rotation that everybody knows, they are
the same, whatever the rotation; if b is made of a and others, they are alike. Given b's, the sum of their products over
d != e is a quadratic form of a, whose tail is bounded by Laurent and Massart (2000, lemma 1): no threshold is fitted.
Rows, columns, and halves, quarters and eighths of a message are compared so. Besides, no combination of rows, of
columns or of a row's own numbers may be bare.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.facts.residuals import DROWNED, Shape, Spending, leaves_a_direction, normal_scores
from fglaudit.wire.observing.waves import waves_together

_FEWEST = 12
"""Draws below which nothing is asked."""
_MOST_BLOCKS, _MOST_DRAWS = 128, 128
"""Blocks that are compared with one another, and draws of them: ever more of both cost more than they tell."""
_MOST_DIRECTIONS, _MOST_CUBES = 512, 2**26
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
    for flat in (across.reshape(rows, -1), down.reshape(width, -1)):
        if len(flat) > _MOST_DIRECTIONS:
            continue
        if (wrong := leaves_a_direction(flat, torch.full_like(flat[:1, :1], loose), unit, spending)) is not None:
            return wrong
    if shape.name == "gaussian" and _bare_in_a_row(across, loose, spending):
        return "noise that leaves a direction of a row alone"
    return waves_together(draws, loose, shape, spending)


def _some(blocks: Tensor, spending: Spending) -> Tensor:
    if len(blocks) <= _MOST_BLOCKS:
        return blocks
    return blocks[torch.randperm(len(blocks), generator=spending.rng)[:_MOST_BLOCKS].to(blocks.device)]


def _alike(blocks: Tensor, loose: float, spending: Spending) -> bool:
    """Whether inner products over draws of any two ``blocks`` [B, D, m] are more alike than independent noise's."""
    if len(blocks) < 2:
        return False
    blocks = blocks[:, :_MOST_DRAWS]
    _, count, width = blocks.shape
    gram = blocks @ blocks.mT
    gram.diagonal(dim1=1, dim2=2).zero_()
    flat = gram.flatten(1)
    size = torch.linalg.vector_norm(flat, dim=1)
    if count <= width:
        largest = torch.linalg.eigvalsh(gram).abs().amax(1)
    else:  # taking the diagonal away makes the largest eigenvalue smaller, and the others negative at most by it
        largest = torch.linalg.eigvalsh(blocks.mT @ blocks).amax(1)
    x = spending.next() + 2 * math.log(len(blocks))
    bound = 2 * math.sqrt(width * x) * size + 2 * x * largest + 6 * loose * count * width * largest
    products = flat @ flat.T
    products.fill_diagonal_(0)
    return bool((products > bound).any())


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
