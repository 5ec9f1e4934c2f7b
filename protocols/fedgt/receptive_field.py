"""The rows that a mini-batch needs if every node attends to a few sampled nodes, layer by layer from the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.graph_transformer import Neighborhood
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates


@dataclass(frozen=True)
class ReceptiveField:
    """The rows of a mini-batch.

    Attributes:
        layers: for each layer, first to last, the nodes that its targets attend to; the first layer's inputs are all
            rows of the client.
        reached: mask [K, n] of the batch's nodes and the neighbours drawn for them: Algorithm 1's node batch.
        distinct: for each layer, the largest number of distinct targets over the clients (the others are repeats); None
            where they are all nodes or the batch itself.
    """

    layers: tuple[Neighborhood, ...]
    reached: Tensor
    distinct: tuple[Tensor | None, ...]


def draw_field(
    candidates: Candidates, batch: Tensor | None, valid: Tensor, layers: int, count: int, rng: torch.Generator | None
) -> ReceptiveField:
    """Draw ``count`` neighbours for all targets of all ``layers``; shapes are those of :class:`ReceptiveField`.

    The rows of a layer are all nodes of a client if the batch could reach as many, else the nodes that it reaches.

    Args:
        batch: node indices [K, m]; None: all nodes.
        valid: which entries of ``batch`` are real [K, m].
        rng: None takes the most probable neighbours.
    """
    clients, size = candidates.nodes.shape[:2]
    everyone = torch.arange(size, device=valid.device).expand(clients, -1)
    rows, reached = batch, valid
    found: list[Neighborhood] = []
    distinct: list[Tensor | None] = [None]
    for layer in reversed(range(layers)):
        targets = everyone if rows is None else rows
        if rng is None:
            neighbors, log_counts = candidates.largest(targets, count)
        else:
            neighbors, log_counts = candidates.draw(targets, count, rng), None
        if not found:
            reached = _reached(targets, neighbors, valid, log_counts, size)
        if layer > 0 and rows is not None and neighbors[0].numel() + targets.shape[1] < size:
            inner, most = _distinct(torch.cat([targets, neighbors.flatten(1)], 1), size)
            position = torch.zeros(clients, size, dtype=torch.long, device=valid.device)
            position.scatter_(1, inner, torch.arange(inner.shape[1], device=valid.device).expand(clients, -1))
            inside = position.gather(1, neighbors.flatten(1)).view_as(neighbors)
            found.append(Neighborhood(position.gather(1, targets), inside, log_counts))
            rows = inner
            distinct.append(most)
        else:
            found.append(Neighborhood(rows, neighbors, log_counts))
            rows = None
            distinct.append(None)
    return ReceptiveField(tuple(found[::-1]), reached, tuple(distinct[-2::-1]))


def trim(fields: Sequence[ReceptiveField]) -> list[ReceptiveField]:
    """Return the ``fields`` without repeated targets; all sizes are copied to the host at once."""
    sizes = [most for field in fields for most in field.distinct if most is not None]
    kept = iter(torch.stack(sizes).tolist() if sizes else [])
    trimmed = []
    for field in fields:
        layers = [
            where if most is None else where.part(slice(int(next(kept))))
            for where, most in zip(field.layers, field.distinct, strict=True)
        ]
        trimmed.append(ReceptiveField(tuple(layers), field.reached, field.distinct))
    return trimmed


def _reached(targets: Tensor, neighbors: Tensor, valid: Tensor, log_counts: Tensor | None, size: int) -> Tensor:
    """Return the mask [K, n] of targets [K, m] and neighbours [K, m, s]; ``valid`` [K, m], ``log_counts`` [K, m, s]."""
    used = valid.unsqueeze(2).expand_as(neighbors)
    if log_counts is not None:
        used = used & torch.isfinite(log_counts)
    nodes, used = torch.cat([targets, neighbors.flatten(1)], 1), torch.cat([valid, used.flatten(1)], 1)
    mask = torch.zeros(len(nodes), size, dtype=torch.long, device=nodes.device)
    return mask.scatter_add_(1, nodes, used.long()) > 0


def _distinct(nodes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return every client's distinct ``nodes`` [K, m] and the largest number of them (a scalar tensor).

    Distinct nodes come first and are padded with other nodes to [K, m], a width that does not depend on the draws.
    """
    used = torch.zeros(len(nodes), size, dtype=torch.int8, device=nodes.device).scatter_(1, nodes, 1)
    return used.argsort(dim=1, descending=True, stable=True)[:, : nodes.shape[1]], used.sum(1).max()
