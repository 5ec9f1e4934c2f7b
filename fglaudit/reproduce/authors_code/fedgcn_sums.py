"""The FedGCN of FedGraph's library, branch ``FedGAT``, to explain FedGAT's rows of it; not a protocol of the package.

Its first layer is a linear map, with a bias, of the plain sum of a node's neighbours' features: the node itself is left
out and nothing is divided by degrees, where FedGCN's own text and code have the normalised mean. The second layer
propagates over a client's nodes and their neighbours, normalised by degrees within that subgraph. 100 rounds of three
steps of plain gradient descent at 0.5 (``docs/examples/configs/config_FedGCN.yaml``); the first weights are uniform
within ``1 / sqrt(features)``. Not as there: the second layer has no bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fglaudit.federated.neighborhood import HeldRows, KeptEdges, local_degrees
from fglaudit.federated.problem import Problem, Targets
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.weights import gcn_layout, glorot
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import split


@dataclass(frozen=True)
class PublishedSums(FedGCN):
    """Training like FedGCN's, from sums of neighbours' features; ``hops`` have no effect."""

    rounds: int = 100

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = [graph.client(k) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        rows = HeldRows.within(edges, len(clients), 1)
        row, column = rows.known_edges(edges, reach=1)
        problem = Problem.on(
            Targets.of(clients, graph.num_nodes), rows, row, column, local_degrees(row, column, len(rows.node))
        )
        x = graph.x.float()
        sums = torch.zeros_like(x).index_add_(0, graph.edge_index[0], x[graph.edge_index[1]])
        inputs = torch.cat([sums, torch.ones(len(x), 1)], 1).to(device)[rows.node][problem.needed(self.layers)]
        layout = gcn_layout(inputs.shape[1], self.hidden, graph.num_classes, self.layers)
        model = glorot(layout, split(rng, "weights"))
        first = inputs.shape[1] * self.hidden
        model[:first] *= math.sqrt((inputs.shape[1] + self.hidden) / (6 * graph.num_features))
        fields = problem.fields(inputs, self.layers)
        return self.averaging().train(*fields, model.to(device), layout, channel, rng)
