"""Ego-graphs for a Gophormer, drawn hop by hop; in tests several per node (multi-sample inference)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.nn.graph_transformer import Dropout, Weights, row_blocks
from fglaudit.protocols.baselines.gophormer import Gophormer, Sequences
from fglaudit.protocols.baselines.proximity import Proximity
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates


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

    def everyone(self, rng: torch.Generator) -> EveryEgo:
        return EveryEgo(self, rng)

    def _draw(self, rows: Tensor, valid: Tensor, rng: torch.Generator) -> EgoBatch:
        shells = [rows.unsqueeze(2)]
        for _ in range(self.hops):
            drawn = self.candidates.draw(shells[-1].flatten(1), self.neighbors, rng)
            shells.append(drawn.view(*rows.shape, -1))
        nodes = torch.cat(shells, 2)
        used = valid.unsqueeze(2).expand_as(nodes).flatten(1).long()
        reached = torch.zeros_like(self.present, dtype=torch.long).scatter_add_(1, nodes.flatten(1), used) > 0
        return EgoBatch(self.network, Sequences.of(nodes, self.proximity, self.network.global_nodes), reached)


@dataclass(frozen=True)
class EveryEgo:
    """All nodes with ``test_samples`` ego-graphs each, drawn block by block when they are classified."""

    surroundings: EgoGraphs
    rng: torch.Generator

    @property
    def reached(self) -> Tensor:
        return self.surroundings.present

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        """Return the logarithms of the mean class probabilities [K, n, C]."""
        around = self.surroundings
        everyone = torch.arange(around.present.shape[1], device=inputs.device).expand(len(inputs), -1)
        length = sum(around.neighbors**hop for hop in range(around.hops + 1)) + around.network.global_nodes
        found = []
        for part in row_blocks(everyone.shape[1], len(inputs) * length * (length + 3 * inputs.shape[2])):
            chances = [
                around._draw(everyone[:, part], around.present[:, part], self.rng)
                .logits(weights, inputs, global_nodes, dropout)
                .softmax(2)
                for _ in range(around.test_samples)
            ]
            found.append(torch.stack(chances).mean(0).log())
        return torch.cat(found, 1)
