"""Sequences around nodes for the network of FedGT's published code: nodes drawn by PageRank, without replacement.

The authors draw in proportion to the rows of ``nu (I - (1 - nu) A D^-1)^-1``, which by symmetry of A are the scores of
the walks from a node over the degrees of where they end (constant factors do not count); the paper's scores are the
columns. A node may be drawn for its own sequence and then stands in it twice. Where fewer nodes are reached than are to
be drawn the rest stays empty; the authors' call fills it with arbitrary nodes. In tests nodes are drawn afresh, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.graph import ClientGraph
from fglaudit.nn.graph_transformer import Dropout, Weights
from fglaudit.nn.two_attention_transformer import Surrounded, TwoAttentionTransformer
from fglaudit.protocols.fedgt.drawn_in_blocks import DrawnInBlocks
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates
from fglaudit.protocols.fedgt.proximity import Proximity


@dataclass(frozen=True)
class SequenceBatch:
    """One sequence per node of a batch; satisfies :class:`fglaudit.federated.subgraph_training.Batch`."""

    network: TwoAttentionTransformer
    sequences: Surrounded
    reached: Tensor

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        return self.network.logits(weights, inputs, self.sequences, global_nodes, dropout)


@dataclass(frozen=True)
class SurroundingSequences:
    """Sequences of K clients.

    Attributes:
        candidates: of every node, with the scores in proportion to which they are drawn.
        present: which rows are nodes [K, n].
        neighbors: drawn per sequence.
    """

    network: TwoAttentionTransformer
    candidates: Candidates
    proximity: Proximity
    present: Tensor
    neighbors: int

    def draw(self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator) -> Iterator[SequenceBatch]:
        # One batch at a time: the pairs within sequences take much more memory than the nodes.
        for batch, mask in zip(batches, valid, strict=True):
            yield self._draw(batch, mask, rng)

    def everyone(self, rng: torch.Generator) -> DrawnInBlocks:
        length = 1 + self.neighbors + self.network.tokens
        pairs = length**2 * (self.network.powers + 2 * self.network.heads)
        return DrawnInBlocks(lambda rows, valid: self._draw(rows, valid, rng), self.present, pairs, length)

    def _draw(self, rows: Tensor, valid: Tensor, rng: torch.Generator) -> SequenceBatch:
        drawn, found = self.candidates.draw_distinct(rows, self.neighbors, rng)
        nodes = torch.cat([rows.unsqueeze(2), drawn], 2)
        missing = torch.cat([torch.zeros_like(found[:, :, :1]), ~found], 2)
        used = (valid.unsqueeze(2) & ~missing).flatten(1).long()
        reached = torch.zeros_like(self.present, dtype=torch.long).scatter_add_(1, nodes.flatten(1), used) > 0

        def near(part: slice) -> Tensor:
            return self.proximity.among(nodes[:, part])

        return SequenceBatch(self.network, Surrounded(nodes, near, missing), reached)


def over_degrees(candidates: Candidates, clients: Sequence[ClientGraph]) -> Candidates:
    """Divide every candidate's score by its degree within its client, at least 1."""
    degrees = torch.ones(candidates.nodes.shape[:2])
    for k, client in enumerate(clients):
        count = torch.bincount(client.edge_index[0], minlength=len(client.nodes))
        degrees[k, : len(client.nodes)] = count.clamp(min=1).float()
    by_candidate = degrees.unsqueeze(1).expand(-1, candidates.nodes.shape[1], -1).gather(2, candidates.nodes)
    return Candidates(candidates.nodes, candidates.scores / by_candidate)
