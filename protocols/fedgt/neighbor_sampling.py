"""Which nodes a node attends to: candidates per node, and random draws of n_s of them (FedGT, sections 4.1 and E.4).

* ``ppr``: the candidates are the nodes with the largest personalised PageRank, drawn in proportion to it.
* ``graphsage``: the nodes within two hops, with equal scores.
* ``neighbors``: the neighbours, with equal scores (for each layer of GraphSAGE).
* ``attribute``: the nodes with the most similar features, drawn in proportion to the cosine.

A node is a candidate of itself (``graphsage``: if it has a neighbour; ``neighbors``: if it has none). Draws are
independent: a node may be drawn twice and then counts twice in the attention, so that on average a node's weight is in
proportion to its score. Without a generator the n candidates with the largest scores are taken, each with ``log(n p)``
added to its attention score, the logarithm of its expected count among n draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fglaudit.errors import unknown
from fglaudit.graph import ClientGraph
from fglaudit.protocols.fedgt.near_nodes import near_nodes
from fglaudit.protocols.fedgt.ppr import largest_scores
from fglaudit.protocols.fedgt.similar_nodes import similar_nodes

Strategy = Literal["ppr", "graphsage", "attribute", "neighbors"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True)
class Candidates:
    """Candidates of every node of every client, by falling score.

    Attributes:
        nodes: local node indices [K, n, w].
        scores: [K, n, w]; 0 where there is no candidate; every node has one.
    """

    nodes: Tensor
    scores: Tensor

    def draw(self, rows: Tensor, count: int, rng: torch.Generator) -> Tensor:
        """Draw candidates with replacement [K, m, count] for nodes ``rows`` [K, m]; ``rng`` is on their device."""
        nodes, scores = self._of(rows)
        bounds = scores.cumsum(2)
        points = torch.rand((*rows.shape, count), generator=rng, device=rows.device) * bounds[:, :, -1:]
        # Rounding may put a point on the last bound, and so beyond the last candidate.
        last = (scores > 0).sum(2, keepdim=True) - 1
        return nodes.gather(2, torch.minimum(torch.searchsorted(bounds, points, right=True), last))

    def draw_distinct(self, rows: Tensor, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``count`` different candidates of nodes ``rows`` [K, m], one by one in proportion to the scores.

        Returns the nodes and which of them were found [K, m, count]: a node may have fewer candidates.
        """
        nodes, scores = self._of(rows)
        waits = torch.empty_like(scores).exponential_(generator=rng) / scores  # the first of competing exponentials
        first = waits.topk(count, 2, largest=False)
        return nodes.gather(2, first.indices), torch.isfinite(first.values)

    def largest(self, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the ``count`` best candidates of nodes ``rows`` [K, m] and the logarithms of their expected counts.

        Both are [K, m, count]. Expected counts are those of draws among these candidates; -inf for padding.
        """
        nodes, scores = (part[:, :, :count] for part in self._of(rows))
        return nodes, (count * scores / scores.sum(2, keepdim=True)).log()

    def _of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        client = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        return self.nodes[client, rows], self.scores[client, rows]

    def to(self, device: torch.device) -> Candidates:
        return Candidates(self.nodes.to(device), self.scores.to(device))


def find_candidates(
    clients: Sequence[ClientGraph],
    strategy: str,
    width: int,
    restart: float,
    rng: torch.Generator,
) -> Candidates:
    """Return at most ``width`` candidates per node, nodes and scores [K, n, width], padded to the largest client.

    Args:
        restart: nu of the personalised PageRank.
        rng: chooses among more than ``width`` near nodes.

    Raises:
        FglauditError: for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise unknown("sampling strategy", strategy, STRATEGIES)
    largest = max(len(client.nodes) for client in clients)
    nodes = torch.zeros(len(clients), largest, width, dtype=torch.long)
    scores = torch.zeros(len(clients), largest, width)
    for k, client in enumerate(clients):
        count = len(client.nodes)
        if strategy == "ppr":
            found = largest_scores(client.edge_index, count, restart, width)
        elif strategy in ("graphsage", "neighbors"):
            found = near_nodes(client.edge_index, count, width, rng, two_hops=strategy == "graphsage")
        else:
            found = similar_nodes(client.x, width)
        nodes[k, :count], scores[k, :count] = found
    alone = scores[:, :, 0] <= 0
    nodes[:, :, 0] = torch.where(alone, torch.arange(largest), nodes[:, :, 0])
    scores[:, :, 0] = torch.where(alone, 1.0, scores[:, :, 0])
    return Candidates(nodes, scores)
