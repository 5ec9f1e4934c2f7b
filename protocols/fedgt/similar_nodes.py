"""Candidates by features: the nodes whose rows have the largest cosine, which is their score."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

ROWS_AT_ONCE = 2048


def similar_nodes(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return every row's ``width`` rows with the largest cosine [n, width], and these cosines, at least 0 (0 pads)."""
    unit = functional.normalize(x, dim=1)
    nodes, scores = torch.zeros(len(x), width, dtype=torch.long), torch.zeros(len(x), width)
    for start in range(0, len(x), ROWS_AT_ONCE):  # blocks of rows: the whole matrix of cosines is quadratic
        top = (unit[start : start + ROWS_AT_ONCE] @ unit.T).topk(min(width, len(x)), 1)
        nodes[start : start + ROWS_AT_ONCE, : top.indices.shape[1]] = top.indices
        scores[start : start + ROWS_AT_ONCE, : top.values.shape[1]] = top.values.clamp(min=0)
    return nodes, scores
