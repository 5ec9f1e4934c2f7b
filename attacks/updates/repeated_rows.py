"""Rows of any numbers from changes of a layer of rectified units: directions in which several units' weights move.

A unit's weights move along the sum of the rows at which it is active, each times the unit's gradient there. A unit that
is active at a single row moves along that row; so do all units, where there is one row only. Of sums of several rows
the gradients would have to stand in the same ratios for another unit to move along the same one: within a round those
of two classes do, from round to round none. So directions that come again are rows, in more rounds first. A unit is
active where its weights and the row have a positive product, which tells a direction from its opposite.

Geiping et al. (NeurIPS 2020, section 5) note that a fully connected layer's gradient shows its only input; Fowl et al.
(ICLR 2022) make units see single inputs. Here units do so by chance.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CLEAR = 30.0
"""A column is looked at if its length is this many times that of its errors."""
_ALIKE = 2e-7
"""Least squared sine that counts as the same direction: of rows in float32."""
_APART = 9.0
"""Squared errors of a direction, in standard deviations, up to which two are the same."""


def repeated_rows(change: Tensor, weights: Tensor, units: int, error: float) -> Tensor:
    """Return the directions [R, F] in which two columns or more of ``change`` [F, m] lie, surest first.

    Args:
        weights: of the units before they moved [F, m].
        units: columns of a round; m is a multiple of it.
        error: standard deviation of an entry's error.
    """
    length = change.norm(dim=0)
    noise = error * change.shape[0] ** 0.5
    there = (length > _CLEAR * noise).nonzero().squeeze(1)
    unit = change[:, there] / length[there]
    sine = (1 - (unit.T @ unit).square()).clamp(min=0)
    spread = (noise / length[there]).square()
    alike = sine <= _ALIKE + _APART * (spread[:, None] + spread)
    first = alike.int().argmax(1) if len(there) else there
    heads = (torch.bincount(first, minlength=len(there)) > 1).nonzero().squeeze(1)
    member = first == heads[:, None]  # [R, columns]
    rounds = torch.div(there, units, rounding_mode="floor")
    several = torch.zeros(len(heads), change.shape[1] // units, dtype=torch.long)
    several.index_add_(1, rounds, member.long())
    best = torch.where(member, length[there], -1.0).argmax(1) if len(heads) else heads
    rows = unit[:, best].T
    active = torch.where(member, torch.sign(rows @ weights[:, there]), 0.0).sum(1)
    rows = rows * torch.where(active < 0, -1.0, 1.0)[:, None]
    order = ((several > 0).sum(1) * change.shape[1] + member.sum(1)).argsort(descending=True, stable=True)
    found: Tensor = rows[order]
    return found
