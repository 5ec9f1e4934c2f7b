"""Ego-graphs for a Gophormer, drawn hop by hop; in tests several per node (multi-sample inference)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.graph_transformer import Dropout, Weights
from fglaudit.protocols.baselines.gophormer import Gophormer, Sequences
from fglaudit.protocols.fedgt.drawn_in_blocks import DrawnInBlocks
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates
from fglaudit.protocols.fedgt.proximity import Proximity


@dataclass(frozen=True)
class EgoBatch:
    """One ego-graph per node of a batch; satisfies :class:`fglaudit.federated.subgraph_training.Batch`."""

    network: Gophormer
    egos: Sequences
    reached: Tensor

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        return self.network.logits(weights, inputs, self.egos, dropout)


@dataclass(frozen=True)
class EgoGraphs:
    """Ego-graphs of K clients.

    Attributes:
        candidates: a node's neighbours, with equal scores.
        present: which rows are nodes [K, n].
        hops, neighbors: for every node drawn in one hop, ``neighbors`` neighbours are drawn in the next.
        test_samples: ego-graphs per node in tests, whose class probabilities are averaged.
    """

    network: Gophormer
    candidates: Candidates
    proximity: Proximity
    present: Tensor
    hops: int
    neighbors: int
    test_samples: int

    def draw(self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator) -> Iterator[EgoBatch]:
        # One batch at a time: the pairs within ego-graphs take much more memory than the nodes.
        for batch, mask in zip(batches, valid, strict=True):
            yield self._draw(batch, mask, rng)

    def everyone(self, rng: torch.Generator) -> DrawnInBlocks:
        length = sum(self.neighbors**hop for hop in range(self.hops + 1)) + self.network.global_nodes
        return DrawnInBlocks(
            lambda rows, valid: self._draw(rows, valid, rng), self.present, length**2, length, self.test_samples
        )

    def _draw(self, rows: Tensor, valid: Tensor, rng: torch.Generator) -> EgoBatch:
        shells = [rows.unsqueeze(2)]
        for _ in range(self.hops):
            drawn = self.candidates.draw(shells[-1].flatten(1), self.neighbors, rng)
            shells.append(drawn.view(*rows.shape, -1))
        nodes = torch.cat(shells, 2)
        used = valid.unsqueeze(2).expand_as(nodes).flatten(1).long()
        reached = torch.zeros_like(self.present, dtype=torch.long).scatter_add_(1, nodes.flatten(1), used) > 0
        return EgoBatch(self.network, Sequences(nodes, self.proximity, self.network.global_nodes), reached)
