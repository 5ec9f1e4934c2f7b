"""FedAvg over Gophormer (Zhao et al. 2021, arXiv:2110.13094), a row of FedGT's Tables 1 and 2 (sections 5.1 and D.2).


Every client trains a transformer over ego-graphs of its own subgraph (``gophormer``); the server averages the models,
weighted by training nodes, and every client tests the average on its own nodes.

What is observed: the server sees the change of every client's model in every round, clients see the averages. The
learned global nodes are ordinary weights of the model; no client has its own.

FedGT's authors state 2 layers and 4 heads; the rest follows the original. Choices: two hops of 5 neighbours each (what
they draw for GraphSAGE), one global node, proximity up to the square of the adjacency, width and optimiser as in FedGT,
no positional encoding except the proximities. Adam keeps its moments; the round with the best validation accuracy
counts. The original draws several ego-graphs per node, with consistency regularisation in training and averaged
predictions in tests (``samples``, ``consistency``, ``test_samples``); the default is one, for speed
(``python -m bench fedgt-choices`` compares it with two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fglaudit.errors import require_least
from fglaudit.federated.subgraph_average import AveragedSubgraphs
from fglaudit.federated.subgraph_inputs import SubgraphInputs
from fglaudit.federated.subgraph_training import SubgraphSettings
from fglaudit.graph import ClientGraph
from fglaudit.nn.weights import Layout
from fglaudit.protocols.baselines.ego_graphs import EgoGraphs
from fglaudit.protocols.baselines.gophormer import Gophormer
from fglaudit.protocols.fedgt.neighbor_sampling import find_candidates
from fglaudit.protocols.fedgt.proximity import Proximity


@dataclass(frozen=True)
class FedAvgGophormer(AveragedSubgraphs):
    """FedAvg over Gophormer.

    Attributes:
        heads, feed_forward: see :class:`fglaudit.nn.graph_transformer.GraphTransformer`.
        hops, neighbors: of an ego-graph: for every node drawn in one hop, ``neighbors`` neighbours are drawn in the
            next.
        candidates: neighbours per node that can be drawn.
        global_nodes: learned nodes in every sequence.
        powers: of the adjacency in the proximity encoding.
        samples: ego-graphs per training node and step.
        consistency: weight of their disagreement in the loss.
        test_samples: ego-graphs per node in tests.
    """

    name: ClassVar[str] = "fedavg-gophormer"

    heads: int = 4
    feed_forward: int = 256
    hops: int = 2
    neighbors: int = 5
    candidates: int = 32
    global_nodes: int = 1
    powers: int = 2
    samples: int = 1
    consistency: float = 0.0
    test_samples: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, hops=1, neighbors=1, candidates=self.neighbors, test_samples=1)

    def network(self) -> Gophormer:
        return Gophormer(self.layers, self.hidden, self.heads, self.feed_forward, self.global_nodes, self.powers)

    def layout(self, num_inputs: int, num_classes: int) -> Layout:
        return self.network().layout(num_inputs, num_classes)

    def settings(self) -> SubgraphSettings:
        return replace(super().settings(), samples=self.samples, consistency=self.consistency)

    def surroundings(self, clients: Sequence[ClientGraph], inputs: SubgraphInputs, rng: torch.Generator) -> EgoGraphs:
        device = inputs.labels.device
        candidates = find_candidates(clients, "neighbors", self.candidates, 1.0, rng).to(device)
        proximity = Proximity.of(clients, self.powers, device)
        return EgoGraphs(
            self.network(), candidates, proximity, inputs.present, self.hops, self.neighbors, self.test_samples
        )
