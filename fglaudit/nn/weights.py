"""Weights of K models at once, by name or as vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor

Layout = Mapping[str, tuple[int, ...]]
"""Shape of each weight of one model, in the order in which they are concatenated."""


NORM = "norm"
"""Last part of the names of scale and shift [2, d] after which batch normalisation leaves a layer."""


def gcn_layout(
    num_features: int, hidden: int, num_classes: int, layers: int, *, normalised: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes [in, out] of a GCN, which has no biases, as the original.

    Args:
        normalised: with a scale and a shift [2, hidden] after every layer but the last, for batch normalisation.
    """
    widths = [num_features, *[hidden] * (layers - 1), num_classes]
    layout: dict[str, tuple[int, ...]] = {}
    for index, shape in enumerate(itertools.pairwise(widths)):
        layout[f"layers.{index}.weight"] = shape
        if normalised and index < layers - 1:
            layout[f"layers.{index}.{NORM}"] = (2, hidden)
    return layout


def glorot(layout: Layout, rng: torch.Generator) -> Tensor:
    """Draw one model [D], uniform with bound ``sqrt(6 / (in + out))`` per weight (Glorot and Bengio 2010); scales of
    batch normalisation begin at 1, shifts at 0."""
    parts = []
    for name, (fan_in, fan_out) in layout.items():
        if name.endswith(NORM):
            parts.append(torch.cat([torch.ones(fan_out), torch.zeros(fan_out)]))
            continue
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
    return {name: part.reshape(len(part), *shape) for (name, shape), part in zip(layout.items(), parts, strict=True)}
