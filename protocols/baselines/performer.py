"""Attention in linear time and memory by positive random features (Performer, Choromanski et al. 2021).

``exp(q k) = E[phi(q) phi(k)]`` with ``phi(x) = exp(w x - |x|^2 / 2)`` over Gaussian w. Here r vectors w are fixed:
orthogonal in blocks, with Gaussian lengths. A query's output is
``phi(q) (sum_j phi(k_j) v_j') / phi(q) sum_j phi(k_j)``: no matrix over pairs is formed.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from fglaudit.rng import derive

_FLOOR = 1e-6
"""Added to every feature relative to the largest, so that no query has weight zero everywhere."""


@functools.lru_cache(maxsize=8)
def directions(count: int, width: int) -> Tensor:
    """Return ``count`` directions w [count, width]; always the same, so that all clients and rounds share them."""
    rng = derive(0, "performer", count, width)
    blocks = []
    for _ in range(-(-count // width)):
        square = torch.linalg.qr(torch.randn(width, width, generator=rng, dtype=torch.float64)).Q
        blocks.append(
            square.T * torch.randn(width, width, generator=rng, dtype=torch.float64).norm(dim=1, keepdim=True)
        )
    return torch.cat(blocks)[:count].float()


@functools.lru_cache(maxsize=8)
def _placed(count: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return directions(count, width).to(device, dtype)


def linear_attention(query: Tensor, key: Tensor, value: Tensor, present: Tensor, features: int) -> Tensor:
    """Return approximate softmax attention [K, h, m, d] of queries [K, h, m, d] over keys and values [K, h, n, d].

    Args:
        present: which keys count [K, n].
        features: r.
    """
    width = query.shape[3]
    w = _placed(features, width, query.device, query.dtype) * width**-0.25
    half = width**-0.5 / 2
    mask = present[:, None, :, None]
    of_key = key @ w.T - half * key.square().sum(3, keepdim=True)
    # A factor per query and one per head cancel in the quotient; they keep the exponentials in range.
    of_key = of_key.masked_fill(~mask, -torch.inf)
    of_key = (of_key - of_key.amax((2, 3), keepdim=True).detach()).exp() + _FLOOR * mask
    of_query = query @ w.T
    of_query = (of_query - of_query.amax(3, keepdim=True).detach()).exp() + _FLOOR
    attended: Tensor = of_query @ (of_key.transpose(2, 3) @ value) / (of_query @ of_key.sum(2).unsqueeze(3))
    return attended
