"""Channels, defenses and graphs that the tests of differentially private training share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.context import Context
from fglaudit.defenses.training.dp_fedavg import _Session as DpFedAvgSession
from fglaudit.defenses.training.dp_sgd import _Session as DpSgdSession
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Trained
from fglaudit.protocols.baselines.dist_gat import DistGAT
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.gat import GAT
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.baselines.local_gcn import LocalGCN
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph
from fglaudit.wire.channel import RecordingChannel

GRAPH = example_graph()


def per_node(graph: FederatedGraph) -> FederatedGraph:
    """Return the graph with every node as a client of its own."""
    order = torch.argsort(torch.cat(graph.clients))

    def single(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(torch.split(torch.cat(parts)[order], 1))

    return dataclasses.replace(
        graph,
        clients=tuple(torch.split(torch.arange(graph.num_nodes), 1)),
        train=single(graph.train),
        val=single(graph.val),
        test=single(graph.test),
    )


BY_EXAMPLES: list[tuple[FederatedProtocol, FederatedGraph]] = [
    (FedGCN(hops=0, rounds=3, dropout=0.2), GRAPH),
    (FedGCN(hops=1, rounds=3, optimizer="adam", learning_rate=0.01), GRAPH),
    (FedGCN(hops=2, rounds=2, participation=0.5), GRAPH),
    (GCN(rounds=3), GRAPH),
    (LocalGCN(rounds=3), GRAPH),
    (GAT(rounds=2, hidden=4, heads=2), GRAPH),
    (DistGAT(rounds=2, hidden=4, heads=2, proximal=0.1), GRAPH),
    (FedAvgSage(rounds=2, hidden=8, batch_size=3), GRAPH),
    (FedMLP(rounds=2, hidden=8), per_node(GRAPH)),
    (FedMLP(rounds=2, hidden=8, federated=False), per_node(GRAPH)),
]
"""Every protocol that trains example by example where a defense asks for it."""


class _Sums(DefenseSession):
    def __init__(self) -> None:
        self.asked = 0

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        self.asked += 1
        return gradients.sum(0)


@dataclass(frozen=True)
class Sums(Defense):
    """Asks for gradients example by example and adds them up."""

    name: ClassVar[str] = "sums"

    def bind(self, context: Context) -> DefenseSession:
        return _Sums()


def train(protocol: FederatedProtocol, graph: FederatedGraph, session: DefenseSession, *, seed: int = 0) -> Trained:
    """Train from the same weights every time, with the defense's noise of ``seed``."""
    channel = RecordingChannel(session, graph.num_clients, derive(seed, "defense"))
    return protocol.train(graph, channel, rng=derive(0, "train"), device=CPU)


def change_noise(session: DpSgdSession | DpFedAvgSession, factor: float) -> None:
    """Have the session add ``factor`` times the noise that it states."""
    session.mechanism = dataclasses.replace(session.mechanism, multiplier=session.mechanism.multiplier * factor)


SILENT = 1e-9
"""A factor that leaves nearly no noise."""
