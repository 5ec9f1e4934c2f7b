"""What a graph network makes of a random graph: a functional embedding, made by whoever has the network's weights.

The graph need not be the one that clients use: what a model says of nodes without features of any class hardly depends
on the draw. It is drawn as FED-PUB's authors do: communities of equal size, rows from N(0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import symmetric_weights
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import Layout, unflatten

_COMMUNITIES, _SIZE, _CHANCE = 5, 100, 0.1


def functional_embeddings(models: Tensor, layout: Layout, convolutions: Sequence[str], rng: torch.Generator) -> Tensor:
    """Return the mean output of the last of the ``convolutions`` of ``models`` [K, D] over a random graph [K, d].

    Args:
        convolutions: names in ``layout``, in order: ``relu(A h W + b)`` each, the last one without relu.
    """
    weights = unflatten(models.float(), layout)
    adjacency = _adjacency(rng)
    x = torch.randn(_COMMUNITIES * _SIZE, layout[convolutions[0] + ".weight"][0], generator=rng)
    seen = (adjacency @ x).expand(len(models), -1, -1)
    for place, name in enumerate(convolutions):
        mapped = seen @ weights[name + ".weight"]
        if place:
            mapped = torch.stack([adjacency @ part for part in mapped])
        seen = mapped + weights[name + ".bias"].unsqueeze(1)
        seen = seen.relu() if place + 1 < len(convolutions) else seen
    return seen.mean(1)


def _adjacency(rng: torch.Generator) -> SparseMatrix:
    count = _COMMUNITIES * _SIZE
    first, second = torch.triu_indices(count, count, offset=1)
    inside = torch.div(first, _SIZE, rounding_mode="floor") == torch.div(second, _SIZE, rounding_mode="floor")
    drawn = inside & (torch.rand(len(first), generator=rng) < _CHANCE)
    loops = torch.arange(count)
    row, column = torch.cat([first[drawn], second[drawn], loops]), torch.cat([second[drawn], first[drawn], loops])
    values = symmetric_weights(row, column, torch.bincount(row, minlength=count) - 1)
    return SparseMatrix.from_entries(row, column, values, (count, count))
