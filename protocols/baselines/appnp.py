"""Centralized APPNP (Klicpera, Bojchevski and Guennemann, ICLR 2019), the baseline of GFL-APPNP.

A two-layer perceptron on every node's own features, then M steps of personalised propagation. Nothing is sent: one
party holds everything. As in GFL-APPNP's encoder there are no biases and no dropout, and training is plain gradient
descent; GFL-APPNP with I = 1 computes the same. Accuracy per client is the one model's accuracy on that client's test
nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.node_progress import Choice
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.propagation import propagator
from fglaudit.nn.weights import gcn_layout
from fglaudit.protocols.baselines.full_batch import FullBatchProtocol


@dataclass(frozen=True)
class APPNP(FullBatchProtocol):
    """Centralized APPNP; fields as in :class:`fglaudit.protocols.gfl_appnp.gfl_appnp.GFLAPPNP`."""

    name: ClassVar[str] = "appnp"

    hidden: int = 64
    alpha: float = 0.1
    propagation_steps: int = 10
    rounds: int = 300
    local_steps: int = 10
    learning_rate: float = 0.5
    choice: Choice = "validation"
    truncated: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise FglauditError(
                f"alpha is a probability strictly between 0 and 1; got {self.alpha:g}; the paper uses 0.1"
            )
        require_least(self, hidden=1, propagation_steps=0)
        self.descent()

    def examples(self, graph: FederatedGraph) -> str:
        return "appnp's losses see as many hops as it propagates, in practice all nodes: one node changes them all"

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        edges = graph.edge_index.to(device)
        propagate = propagator(edges, graph.num_nodes, self.alpha, self.propagation_steps, truncated=self.truncated)
        layout = gcn_layout(graph.num_features, self.hidden, graph.num_classes, 2)
        x = graph.x.float().to(device)

        def logits(model: Mapping[str, Tensor]) -> Tensor:
            first, second = model.values()
            return propagate((x @ first).relu() @ second)

        return self.descent().train(graph, self.initial(layout, rng).to(device), layout, logits, channel)
