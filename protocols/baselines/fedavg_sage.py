"""FedAvg over GraphSAGE, the FedAvg row of FedGT's Tables 1 and 2 (Zhang et al. 2023, sections 5.1 and D.2).

Every client trains a two-layer GraphSAGE with mean aggregator and 5 sampled neighbours per layer on its own subgraph;
the server averages the models, weighted by training nodes, and every client tests the average on its own nodes.

What is observed: the server sees every client's model in every round, clients see the averages.

Choices where the paper is silent: in tests all neighbours are averaged (up to ``candidates``); Adam keeps its moments;
the dropout between the layers is 0.5, since none is stated; the round with the best validation accuracy counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Examples
from fglaudit.errors import require_least
from fglaudit.federated.subgraph_average import AveragedSubgraphs
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_training import Surroundings
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.nn.weights import Layout
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.baselines.sage import Sage
from fglaudit.protocols.fedgt.neighbor_sampling import find_candidates
from fglaudit.protocols.fedgt.sampled_neighbors import SampledNeighbors


@dataclass(frozen=True)
class FedAvgSage(AveragedSubgraphs):
    """FedAvg over GraphSAGE; defaults are FedGT's settings for it.

    Attributes:
        neighbors: drawn per node and layer in training.
        candidates: neighbours per node that can be drawn, and that tests average over.
    """

    name: ClassVar[str] = "fedavg-sage"
    changes: ClassVar[bool] = False

    neighbors: int = 5
    candidates: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, neighbors=1, candidates=self.neighbors)

    def network(self) -> Sage:
        return Sage(self.layers, self.hidden)

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.network().layout(num_inputs, num_classes)

    def surroundings(
        self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator
    ) -> Surroundings:
        candidates = find_candidates(clients, "neighbors", self.candidates, 1.0, rng).to(inputs.labels.device)
        return SampledNeighbors(self.network(), candidates, inputs.present, self.neighbors, self.candidates)

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """In an epoch every training node is in one batch; draws reach no further than full neighbourhoods."""
        return node_examples(graph, passes=self.rounds * self.local_epochs, hops=self.layers, widest=self.candidates)
