"""Which rows a mini-batch needs when every node attends to a few sampled others, layer by layer from the top."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.graph_transformer import Neighborhood
from fglaudit.nn.neighbor_sampling import Candidates


@dataclass(frozen=True)
class ReceptiveField:
    """The rows of a mini-batch.

    Attributes:
        layers: for each layer, first to last, whom its targets attend to; the first layer's inputs are all rows of the client.
        reached: mask [K, n] of the batch's nodes and the neighbours drawn for them: what Algorithm 1 calls a node batch.
    """

    layers: list[Neighborhood]
    reached: Tensor


def draw_field(
    candidates: Candidates, batch: Tensor | None, valid: Tensor, layers: int, count: int, rng: torch.Generator | None
) -> ReceptiveField:
    """Draw ``count`` neighbours for all targets of all ``layers``.

    The rows of a layer are all nodes of a client where that is not more than the batch can reach, else those that it does reach.

    Args:
        batch: node indices [K, m]; None: all nodes.
        valid: which entries of ``batch`` are real [K, m].
        rng: None takes the most probable neighbours.
    """
    clients, size = candidates.nodes.shape[:2]
    everyone = torch.arange(size, device=valid.device).expand(clients, -1)
    rows = batch
    found: list[Neighborhood] = []
    reached = valid
    for layer in reversed(range(layers)):
        targets = everyone if rows is None else rows
        neighbors, real = candidates.draw(targets, count, rng)
        if not found:
            reached = _reached(neighbors, real & valid.unsqueeze(2), size)
        inner = None
        if layer > 0 and rows is not None and neighbors[0].numel() < size:
            inner = _distinct(neighbors.flatten(1), size)
        if inner is None:
            found.append(Neighborhood(rows, neighbors, real))
        else:
            position = torch.zeros(clients, size, dtype=torch.long, device=valid.device)
            position.scatter_(1, inner, torch.arange(inner.shape[1], device=valid.device).expand(clients, -1))
            found.append(
                Neighborhood(position.gather(1, targets), position.gather(1, neighbors.flatten(1)).view_as(neighbors), real)
            )
        rows = inner
    return ReceptiveField(found[::-1], reached)


def _reached(neighbors: Tensor, real: Tensor, size: int) -> Tensor:
    mask = torch.zeros(len(neighbors), size, dtype=torch.long, device=neighbors.device)
    return mask.scatter_add_(1, neighbors.flatten(1), real.flatten(1).long()) > 0


def _distinct(nodes: Tensor, size: int) -> Tensor:
    """Return every client's distinct ``nodes`` [K, m], padded with other nodes to a width [K, m] that does not depend on them."""
    used = torch.zeros(len(nodes), size, dtype=torch.int8, device=nodes.device).scatter_(1, nodes, 1)
    return used.argsort(dim=1, descending=True, stable=True)[:, : nodes.shape[1]]
