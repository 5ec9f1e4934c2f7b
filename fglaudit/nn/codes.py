"""Public pseudo-random codes: a vector per node that anybody can draw from a seed and the number of nodes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fglaudit.rng import derive


def public_codes(num_nodes: int, width: int, seed: int) -> Tensor:
    """Return one code per node [N, width]: independent standard normal numbers over ``sqrt(width)``, in float32."""
    codes = torch.randn(num_nodes, width, generator=derive(seed, "public codes"))
    return codes / math.sqrt(max(1, width))
