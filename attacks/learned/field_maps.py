"""How one field is cleaned, with what that leaves of it."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.attacks.learned.cleaned_messages import FieldMap, largest
from fglaudit.attacks.learned.maps.row_map import Learned

GOOD = 1e-4
"""Relative error below which a map needs no rival."""
WORTH = 0.1
"""Relative error above which nothing was learned."""
_NOTHING = 4.0
"""Of the root mean square of what a map leaves: below that an entry is 0."""
_MOST_LEFT = 1.5
"""The same of the most that it leaves, if that is small: numbers of the wire's precision err by their row's size."""
_SMALL = 1e-3
"""Of the deviation of plain entries."""
_COARSE = 1e-10
"""Relative error of numbers with a few more digits lost than the wire's precision has."""


def field_map(learned: Learned, plain: Tensor, sent: Tensor | None = None) -> FieldMap:
    """Return the map with what it leaves of rows like ``plain`` [n, D], by what it makes of ``sent`` where that is
    given."""
    spread = float((plain - plain.mean(0)).square().mean().sqrt().item())
    left = learned.error**0.5 * spread
    if sent is None or len(plain) == 0:
        return FieldMap(learned, plain.shape[1], left, 0.0, learned.error > _COARSE)
    scale = largest(sent)
    wrong = (learned.apply(sent) - plain).abs()
    nothing = _NOTHING * left / max(1e-30, float(scale.median().item()))
    if float(wrong.max().item()) <= _SMALL * spread:
        nothing = max(nothing, _MOST_LEFT * float((wrong / scale).max().item()))
    return FieldMap(learned, plain.shape[1], left, nothing, learned.error > _COARSE)


def on_cpu(learned: Learned, device: torch.device) -> Learned:
    """Return a map that takes and gives tensors on the CPU."""
    if device.type == "cpu":
        return learned
    return Learned(learned.name, learned.error, lambda rows: learned.apply(rows.to(device)).cpu())
