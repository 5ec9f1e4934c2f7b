"""Neighbourhoods for networks whose layers attend to sampled nodes near the targets: FedGT, GraphSAGE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from fglaudit.errors import require_least
from fglaudit.nn.graph_transformer import Dropout, Neighborhood, Weights
from fglaudit.protocols.fedgt.neighbor_sampling import Candidates
from fglaudit.protocols.fedgt.receptive_field import ReceptiveField, draw_field, trim


class Network(Protocol):
    """The network that the clients train."""

    @property
    def layers(self) -> int:
        """Number of layers; each reaches one draw of neighbours further."""

    def logits(
        self,
        weights: Weights,
        inputs: Tensor,
        neighborhoods: Sequence[Neighborhood],
        global_nodes: Tensor,
        dropout: Dropout,
    ) -> Tensor:
        """Return the class scores [K, m, classes] of the last layer's targets.

        Args:
            weights: [K, ...] by name.
            inputs: projected rows [K, n, d].
            global_nodes: [K, g, d].
        """


@dataclass(frozen=True)
class FieldBatch:
    """A mini-batch with its receptive field; satisfies :class:`fglaudit.federated.subgraph_training.Batch`."""

    network: Network
    field: ReceptiveField

    @property
    def reached(self) -> Tensor:
        return self.field.reached

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        return self.network.logits(weights, inputs, self.field.layers, global_nodes, dropout)


@dataclass(frozen=True)
class SampledNeighbors:
    """Draws neighbours in training and uses the most probable ones in tests.

    Attributes:
        present: which rows are nodes [K, n].
        neighbors: drawn per node and layer.
        test_neighbors: number of neighbours in tests, those with the largest scores.
    """

    network: Network
    candidates: Candidates
    present: Tensor
    neighbors: int
    test_neighbors: int

    def __post_init__(self) -> None:
        require_least(self, neighbors=1)

    def draw(self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator) -> Sequence[FieldBatch]:
        fields = [
            draw_field(self.candidates, batch, mask, self.network.layers, self.neighbors, rng)
            for batch, mask in zip(batches, valid, strict=True)
        ]
        return [FieldBatch(self.network, field) for field in trim(fields)]

    def everyone(self, rng: torch.Generator) -> FieldBatch:
        return self._everyone

    @cached_property
    def _everyone(self) -> FieldBatch:
        field = draw_field(self.candidates, None, self.present, self.network.layers, self.test_neighbors, None)
        return FieldBatch(self.network, field)
