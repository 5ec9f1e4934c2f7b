"""How likely two nodes are neighbours, from what a model makes of their rows.

He et al., "Stealing Links from Graph Neural Networks" (USENIX Security 2021): neighbours get like predictions, so pairs
are ranked by how alike those are.

A model without its graph shows less, but not nothing: its first layer weighs words by what they say of a node and its
neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

ROWS_AT_ONCE = 1024


def directions(values: Tensor) -> Tensor:
    """Return the directions of ``values`` [n, d] from their mean, in float64; their products are centred cosines."""
    values = values.double()
    return normalize(values - values.mean(0), dim=1)


def likely_pairs(parts: list[Tensor], most: int) -> tuple[Tensor, Tensor]:
    """Return pairs of positions [S, 2] and the sum of their cosines [S], each in units of its spread over all pairs.

    Args:
        parts: :func:`directions` [n, d] of the n nodes, of one kind each.
        most: pairs that are returned at most, those of the highest scores of every node.
    """
    count = len(parts[0])
    spreads = [_spread(part) for part in parts]
    keep = max(1, min(count, most // max(1, count)))
    pairs, scores = [], []
    for rows in torch.split(torch.arange(count, device=parts[0].device), ROWS_AT_ONCE):
        score = torch.stack([part[rows] @ part.T / s for part, s in zip(parts, spreads, strict=True)]).sum(0)
        value, other = score.topk(keep, dim=1)
        first = rows[:, None].expand_as(other)
        use = first < other if keep == count else first != other
        pairs.append(torch.stack([first[use], other[use]], 1))
        scores.append(value[use])
    return torch.cat(pairs), torch.cat(scores)


def _spread(part: Tensor) -> float:
    """Return the root mean square of the cosines between different nodes; their mean is about 0."""
    square = (part.T @ part).square().sum() - part.square().sum(1).square().sum()
    return max(1e-12, float((square / max(1, len(part) * (len(part) - 1))).sqrt().item()))
