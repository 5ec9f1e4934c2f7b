"""The 1-hop variant that the published code of FedGCN runs, to explain a gap to Table 2; not a protocol of the package.

The paper's text gives a 1-hop client the sums ``S_i`` of its own nodes. The published code instead hands each client
the features of its neighbours and trains an ordinary 2-layer GCN on the subgraph of its own nodes and their neighbours,
with all edges among them, normalised by degrees within it. That client knows more: a neighbour's hidden state comes
from every edge it can see.

With ``noise`` it is what the same code runs as FedSage+: the neighbours' rows are disturbed by N(0, 0.1^2), on the
ground that a generator had learned them that well. With ``share`` it is what it runs as BDS-GCN: each client has that
share of its neighbours at other clients, drawn once before training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fglaudit.federated.neighbor_sums import local_sums
from fglaudit.federated.neighborhood import HeldRows, KeptEdges, local_degrees
from fglaudit.federated.problem import Problem, Targets
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.sparse import row_starts
from fglaudit.nn.weights import gcn_layout, glorot
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import split


@dataclass(frozen=True)
class PublishedOneHop(FedGCN):
    """Training like FedGCN's, on each client's subgraph of own nodes and their neighbours. Features are in the clear.

    Attributes:
        noise: standard deviation of Gaussian noise on every entry of a neighbour's row, another one for every client.
        share: of its neighbours that a client has.
    """

    noise: float = 0.0
    share: float = 1.0

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        clients = [graph.client(k) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        rows = HeldRows.within(edges, len(clients), 1)
        if self.share < 1:
            rows = _sampled(rows, self.share, split(rng, "boundary"))
        row, column = rows.known_edges(edges, reach=1)
        problem = Problem.on(
            Targets.of(clients, graph.num_nodes), rows, row, column, local_degrees(row, column, len(rows.node))
        )
        x = graph.x.to(device)[rows.node].float()
        if self.noise:
            drawn = self.noise * torch.randn(x.shape, generator=split(rng, "noise")).to(device)
            x = torch.where((rows.distance > 0).unsqueeze(1), x + drawn, x)
        sums = local_sums(row, column, problem.propagation.weight.double(), x)[problem.needed(self.layers)]
        fields = problem.fields(sums, self.layers)
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, self.layers)
        model = glorot(layout, split(rng, "weights")).to(device)
        return self.averaging().train(*fields, model, layout, channel, rng)


def _sampled(rows: HeldRows, share: float, rng: torch.Generator) -> HeldRows:
    """Return ``rows`` with ``share`` of every client's rows of others, rounded down."""
    others = (rows.distance > 0).nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=rng).to(others.device)]
    others = others[torch.argsort(rows.client[others], stable=True)]
    client = rows.client[others]
    counts = torch.bincount(client, minlength=len(rows.splits) - 1)
    rank = torch.arange(len(client), device=client.device) - (counts.cumsum(0) - counts)[client]
    keep = rows.distance == 0
    keep[others[rank < (counts * share).long()[client]]] = True
    held = rows.client[keep]
    return HeldRows(held, rows.node[keep], rows.distance[keep], row_starts(held, len(counts)))
