"""Centralized GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017), mean aggregator, full neighbourhoods, no bias.

Layer: ``h_i <- relu(h_i W_self + mean_{j in N(i)} h_j W_neighbour)``, the last one without relu; the mean over no
neighbours is 0. GFL-APPNP's paper uses it as a baseline and does not name the aggregator. Nothing is sent: one party
holds all data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.errors import require_least
from fglaudit.federated.node_progress import Choice
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.protocols.baselines.full_batch import FullBatchProtocol


@dataclass(frozen=True)
class GraphSAGE(FullBatchProtocol):
    """Centralized GraphSAGE; defaults are those of GFL-APPNP's paper for its synthetic graphs."""

    name: ClassVar[str] = "graphsage"

    layers: int = 2
    hidden: int = 64
    rounds: int = 500
    local_steps: int = 10
    learning_rate: float = 0.02
    choice: Choice = "validation"

    def __post_init__(self) -> None:
        require_least(self, layers=1, hidden=1)
        self.descent()

    def layout(self, features: int, classes: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights, two per layer."""
        widths = [features, *[self.hidden] * (self.layers - 1), classes]
        return {
            f"layers.{index}.{part}": shape
            for index, shape in enumerate(pairwise(widths))
            for part in ("self", "neighbour")
        }

    def examples(self, graph: FederatedGraph) -> str:
        return "graphsage is trained by plain descent on one mean over all nodes, without gradients of single losses"

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        row, column = graph.edge_index.to(device)
        share = 1 / torch.bincount(row, minlength=graph.num_nodes).clamp(min=1).float()
        mean = SparseMatrix.from_entries(row, column, share[row], (graph.num_nodes, graph.num_nodes))
        layout = self.layout(graph.num_features, graph.num_classes)
        x = graph.x.float().to(device)
        nearby = mean @ x

        def logits(model: Mapping[str, Tensor]) -> Tensor:
            values = x @ model["layers.0.self"] + nearby @ model["layers.0.neighbour"]
            for layer in range(1, self.layers):
                values = values.relu()
                values = values @ model[f"layers.{layer}.self"] + mean @ (values @ model[f"layers.{layer}.neighbour"])
            return values

        return self.descent().train(graph, self.initial(layout, rng).to(device), layout, logits, channel)
