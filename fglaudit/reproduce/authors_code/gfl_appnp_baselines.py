"""GFL-APPNP's baselines as its authors' code has them (``cora_exp.ipynb`` and ``models.py`` at f40ffa7), to explain
rows of its tables; not protocols of the package.

GraphSAGE and APPNP begin as torch's linear layers do, uniform within ``1 / sqrt(in)``. GAT takes binary rows as they
are, where this package's scales them to norm 1, draws a layer's weights as one matrix, whatever its heads, and keeps
the model of the lowest validation loss after every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.federated.node_progress import Choice
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Channel, Trained
from fglaudit.nn.gat import softmax_scores
from fglaudit.nn.weights import Layout, fan_in, glorot
from fglaudit.protocols.baselines.appnp import APPNP
from fglaudit.protocols.baselines.full_batch import FullBatchProtocol
from fglaudit.protocols.baselines.graphsage import GraphSAGE
from fglaudit.rng import split

HEADS, HIDDEN = 8, 8


@dataclass(frozen=True)
class PublishedAPPNP(APPNP):
    """APPNP from torch's first weights."""

    name: ClassVar[str] = "published-appnp"

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        return fan_in(layout, split(rng, "weights"))


@dataclass(frozen=True)
class PublishedSAGE(GraphSAGE):
    """GraphSAGE from torch's first weights."""

    name: ClassVar[str] = "published-graphsage"

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        return fan_in(layout, split(rng, "weights"))


@dataclass(frozen=True)
class PublishedGAT(FullBatchProtocol):
    """Two layers without biases: 8 heads of 8 units side by side, then one head of as many units as classes."""

    name: ClassVar[str] = "published-gat"

    rounds: int = 4000
    local_steps: int = 1
    learning_rate: float = 0.01
    choice: Choice = "validation"

    def layout(self, features: int, classes: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes: per layer the weights and both score vectors of every head."""
        found: dict[str, tuple[int, ...]] = {}
        for index, (rows, heads, units) in enumerate(((features, HEADS, HIDDEN), (HEADS * HIDDEN, 1, classes))):
            found[f"layers.{index}.weight"] = (rows, heads * units)
            found |= {f"layers.{index}.{part}": (heads, units) for part in ("own", "neighbour")}
        return found

    def initial(self, layout: Layout, rng: torch.Generator) -> Tensor:
        return glorot(layout, split(rng, "weights"))

    def examples(self, graph: FederatedGraph) -> str:
        return "this copy of the authors' GAT explains figures and is not audited"

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        loops = torch.arange(graph.num_nodes).expand(2, -1)
        edges = torch.cat([graph.edge_index, loops], 1).to(device)
        layout, x = self.layout(graph.num_features, graph.num_classes), graph.x.to(device)

        def layer(model: Mapping[str, Tensor], index: int, rows: Tensor) -> Tensor:
            weight, own, neighbour = (model[f"layers.{index}.{part}"] for part in ("weight", "own", "neighbour"))
            return attended(rows, weight, own, neighbour, edges)

        def logits(model: Mapping[str, Tensor]) -> Tensor:
            return layer(model, 1, functional.elu(layer(model, 0, x)))

        return self.descent().train(graph, self.initial(layout, rng).to(device), layout, logits, channel)


def attended(x: Tensor, weight: Tensor, own: Tensor, neighbour: Tensor, edges: Tensor) -> Tensor:
    """Return one layer's outputs, heads side by side [N, heads x units], of rows x [N, F] over ``edges`` [2, E]."""
    row, column = edges
    values = (x @ weight).view(len(x), *own.shape)
    scores = (values * own).sum(2)[row] + (values * neighbour).sum(2)[column]
    share = softmax_scores(scores, row, len(x))
    total = share.new_zeros(len(x), len(own)).index_add(0, row, share)
    mixed = torch.zeros_like(values).index_add(0, row, share.unsqueeze(2) * values[column])
    return (mixed / total.unsqueeze(2)).flatten(1)
