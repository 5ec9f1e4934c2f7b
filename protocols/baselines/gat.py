"""Centralized GAT (Velickovic et al., ICLR 2018): one model trained on the whole graph, the baseline of FedGAT.

Nothing is sent: one party holds all data. ``rounds`` are evaluations, with ``local_steps`` gradient steps before each.
Attention is exact in every layer. Feature rows are scaled to norm at most 1 and weights kept within ``bounds`` as in
FedGAT: the two differ only in the federation and the series. Accuracy per client is the one model's accuracy on that
client's test nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fglaudit.context import Examples
from fglaudit.federated.node_progress import Choice
from fglaudit.federated.problem import pooled
from fglaudit.federated.training import Optimizer
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.gat import unit_ball
from fglaudit.payloads import Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.fedgat.gat_plan import GatProtocol
from fglaudit.protocols.fedgat.gat_training import Bounds


@dataclass(frozen=True)
class GAT(GatProtocol):
    """Centralized GAT; fields as in :class:`fglaudit.protocols.fedgat.fedgat.FedGAT`."""

    name: ClassVar[str] = "gat"
    emits: ClassVar[tuple[type[Payload], ...]] = ()

    layers: int = 2
    heads: int = 8
    hidden: int = 8
    output_heads: int = 1
    rounds: int = 150
    local_steps: int = 1
    optimizer: Optimizer = "sgd"
    learning_rate: float = 2.0
    weight_decay: float = 5e-3
    dropout: float = 0.5
    feature_dropout: float = 0.5
    bounds: Bounds = "none"
    choice: Choice = "last"

    def examples(self, graph: FederatedGraph) -> Examples:
        return node_examples(graph, passes=self.averaging().passes(), hops=self.layers, pooled=True)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        whole = [channel.prepare(pooled(graph))]
        return self.train_exactly(graph, whole, unit_ball(graph.x.to(device)), channel, rng, federated=False)
