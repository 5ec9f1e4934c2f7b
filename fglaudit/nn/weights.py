"""Weights of K models at once, by name or as vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor

Layout = Mapping[str, tuple[int, ...]]
"""Shape of each weight of one model, in the order in which they are concatenated."""


def gcn_layout(num_features: int, hidden: int, num_classes: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes [in, out] of a GCN, which has no biases, as the original."""
    widths = [num_features, *[hidden] * (layers - 1), num_classes]
    return {f"layers.{index}.weight": shape for index, shape in enumerate(itertools.pairwise(widths))}


def glorot(layout: Layout, rng: torch.Generator) -> Tensor:
    """Draw one model [D], uniform with bound ``sqrt(6 / (in + out))`` per weight (Glorot and Bengio 2010)."""
    parts = []
    for fan_in, fan_out in layout.values():
        bound = math.sqrt(6 / (fan_in + fan_out))
        parts.append((torch.rand(fan_in * fan_out, generator=rng) * 2 - 1) * bound)
    return torch.cat(parts)


def fan_in(layout: Layout, rng: torch.Generator) -> Tensor:
    """Draw one model [D], uniform with bound ``1 / sqrt(in)`` per weight, as torch's linear layers begin."""
    parts = [(torch.rand(rows * columns, generator=rng) * 2 - 1) / math.sqrt(rows) for rows, columns in layout.values()]
    return torch.cat(parts)


def flatten(weights: Mapping[str, Tensor]) -> Tensor:
    """Return weights [K, ...] as vectors [K, D]."""
    return torch.cat([weight.flatten(1) for weight in weights.values()], 1)


def unflatten(vectors: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return vectors [K, D] as weights [K, ...] (views)."""
    parts = torch.split(vectors, [math.prod(shape) for shape in layout.values()], 1)
    return {name: part.reshape(-1, *shape) for (name, shape), part in zip(layout.items(), parts, strict=True)}
