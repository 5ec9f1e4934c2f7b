"""FedAvg over GraphGPS (Rampasek et al. 2022), a row of FedGT's Tables 1 and 2 (sections 5.1 and D.2).

Every client trains a GraphGPS of GIN, Performer and Laplacian encoding on its own subgraph (``graph_gps``); the server
averages the models, weighted by training nodes, and every client tests the average on its own nodes.

What is observed: the server sees the change of every client's model in every round, clients see the averages.

FedGT's authors state the parts, 2 layers and 4 heads; the rest follows the original. Choices: the encoding has 8
dimensions and is appended to the features as in FedGT; a step computes the whole subgraph and takes the loss of a batch
of training nodes; the Performer's directions are fixed and the same for all clients. Layers are normalised per node,
not per batch. Adam keeps its moments; the round with the best validation accuracy counts. Dropout is FedGT's: 0.5 was
better than 0.2 on Cora's validation nodes (``python -m bench fedgt-choices``). A larger learning rate than the 0.001 of
FedGT's authors would give a higher accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.errors import require_least
from fglaudit.federated.subgraph_average import AveragedSubgraphs
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.graph import ClientGraph
from fglaudit.nn.weights import Layout
from fglaudit.protocols.baselines.graph_gps import GraphGPS, WholeGraph


@dataclass(frozen=True)
class FedAvgGraphGPS(AveragedSubgraphs):
    """FedAvg over GraphGPS.

    Attributes:
        heads, feed_forward: see :class:`graph_gps.GraphGPS`.
        encoding: dimensions of the Laplacian positional encoding.
        random_features: of the Performer, per head.
    """

    name: ClassVar[str] = "fedavg-graphgps"

    heads: int = 4
    feed_forward: int = 256
    encoding: int = 8
    random_features: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, encoding=0)

    @property
    def positions(self) -> int:
        return self.encoding

    def network(self) -> GraphGPS:
        return GraphGPS(self.layers, self.hidden, self.heads, self.feed_forward, self.random_features)

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.network().layout(num_inputs, num_classes)

    def surroundings(self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator) -> WholeGraph:
        return WholeGraph.of(self.network(), clients, inputs.present)
