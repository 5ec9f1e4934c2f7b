"""Graphs, settings and channels that the FedGAT tests share."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.graph import FederatedGraph, Graph, canonical_edges, federate
from fglaudit.interfaces import DefenseSession, Trained
from fglaudit.payloads import MaskedMatrices, MaskedVectors
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.rng import derive
from fglaudit.testing import example_graph
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")


SMALL: dict[str, Any] = {
    "heads": 2,
    "hidden": 3,
    "rounds": 3,
    "optimizer": "adam",
    "learning_rate": 0.02,
    "dropout": 0.0,
    "feature_dropout": 0.0,
    "bounds": "all",
}


VARIANTS = [MaskedMatrices, MaskedVectors]


def mixed_graph(dtype: torch.dtype = torch.float64, clients: int = 3) -> FederatedGraph:
    """The example graph with random splits, so that every class is trained and tested."""
    graph = example_graph(clients=clients)
    draw = torch.rand(graph.num_nodes, generator=derive(3, "splits"))
    masks = [
        tuple((draw[ids] >= low) & (draw[ids] < high) for ids in graph.clients)
        for low, high in ((0, 0.5), (0.5, 0.6), (0.6, 1))
    ]
    return dataclasses.replace(graph, x=graph.x.to(dtype), train=masks[0], val=masks[1], test=masks[2])


def four_nodes() -> tuple[KeptEdges, Tensor]:
    """0 - 1, 0 - 2, 1 - 2; node 3 has no neighbour, rows 1 and 2 are equal, row 0 is zero."""
    edges = canonical_edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 4)
    x = torch.tensor([[0, 0, 0], [0.5, 0, -0.5], [0.5, 0, -0.5], [0, 0.8, 0.1]], dtype=torch.float64)
    every = torch.ones(4, dtype=torch.bool)
    graph = federate(Graph(x, torch.tensor([0, 1, 0, 1]), edges, "four"), [torch.arange(4)], every, every, every)
    return KeptEdges.of([graph.client(0)], graph.degrees()), x


def quiet(graph: FederatedGraph) -> RecordingChannel:
    return RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"))


def recording(graph: FederatedGraph) -> RecordingChannel:
    return RecordingChannel(DefenseSession(), graph.num_clients, derive(0, "defense"), Transcript())


def train(protocol: FedGAT | GAT | DistGAT, graph: FederatedGraph, channel: RecordingChannel | None = None) -> Trained:
    return protocol.train(graph, channel or quiet(graph), rng=derive(0, "train"), device=CPU)


DROPOUT = {"dropout": 0.3, "feature_dropout": 0.2}


PROTOCOLS = [
    FedGAT(remote="matrices", **SMALL),
    FedGAT(variant="vector", remote="matrices", **SMALL),
    FedGAT(**SMALL),
    FedGAT(variant="vector", local_steps=2, proximal=0.1, participation=0.7, **SMALL | DROPOUT),
    GAT(**SMALL),
    DistGAT(**SMALL),
]
