"""Values of the members of groups, less what a group shares."""

from __future__ import annotations

import torch
from torch import Tensor


def less_group_means(values: Tensor, group: Tensor) -> Tensor:
    """Return ``values`` [n, ...] less the mean of their group, whose number from 0 on is ``group`` [n]."""
    count = int(group.max().item()) + 1
    total = values.new_zeros(count, *values.shape[1:]).index_add_(0, group, values)
    sizes = torch.bincount(group, minlength=count).clamp(min=1)
    return values - (total / sizes.reshape(-1, *[1] * (values.dim() - 1)))[group]
