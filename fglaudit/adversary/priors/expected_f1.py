"""The row with the best expected F1 under independent entries: the m most probable entries, for the best m. A row
without any has an F1 of 1 where that is the truth, and none elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_ENTRIES = 256


def best_f1_bits(chance: Tensor, most: int = MOST_ENTRIES) -> Tensor:
    """Return 0/1 rows [R, F] with at most ``most`` ones for probabilities ``chance`` [R, F] that an entry is one."""
    top, entry = chance.topk(min(most, chance.shape[1]), dim=1)
    number = torch.arange(1, top.shape[1] + 1, device=top.device)
    f1 = 2 * top.cumsum(1) / (number + chance.sum(1, keepdim=True).clamp(min=1e-9))
    value, best = f1.max(1, keepdim=True)
    empty = torch.log1p(-chance.double().clamp(max=1)).sum(1, keepdim=True).exp()
    best = torch.where((top[:, :1] > 0) & (empty <= value), best + 1, 0)
    return torch.zeros_like(chance).scatter_(1, entry, (number <= best).to(chance.dtype))
