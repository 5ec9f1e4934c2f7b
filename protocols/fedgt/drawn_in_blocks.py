"""All nodes of the clients, whose surroundings are drawn block by block when they are classified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fglaudit.federated.subgraph_training import Batch
from fglaudit.nn.graph_transformer import Dropout, Weights, row_blocks


@dataclass(frozen=True)
class DrawnInBlocks:
    """Satisfies :class:`fglaudit.federated.subgraph_training.Batch`: together the draws would not fit into memory.

    Attributes:
        draw: returns some nodes [K, m], of which those of a mask [K, m] count, with their surroundings.
        present: which rows are nodes [K, n].
        numbers: that a node with its surroundings takes, without the rows of ``length`` entries.
        length: entries of a node's surroundings.
        samples: draws per node, whose class probabilities are averaged.
    """

    draw: Callable[[Tensor, Tensor], Batch]
    present: Tensor
    numbers: int
    length: int
    samples: int = 1

    @property
    def reached(self) -> Tensor:
        return self.present

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        """Return the logarithms of the mean class probabilities [K, n, C]."""
        everyone = torch.arange(self.present.shape[1], device=inputs.device).expand(len(inputs), -1)
        found = []
        for part in row_blocks(everyone.shape[1], len(inputs) * (self.numbers + 3 * self.length * inputs.shape[2])):
            chances = [
                self.draw(everyone[:, part], self.present[:, part])
                .logits(weights, inputs, global_nodes, dropout)
                .softmax(2)
                for _ in range(self.samples)
            ]
            found.append(torch.stack(chances).mean(0).log())
        return torch.cat(found, 1)
