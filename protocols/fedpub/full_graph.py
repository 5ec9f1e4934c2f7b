"""Two graph convolutions and a linear layer on K whole subgraphs at once: ``relu(A relu(A x W1 + b1) W2 + b2) V + c``.

The first propagation is done beforehand: the rows that a client's inputs hold are ``A x``, so that
:class:`fglaudit.federated.subgraph_inputs.SubgraphInputs` multiplies by W1 alone. ``A`` is normalised symmetrically,
with self-loops and degrees within the subgraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.federated.neighborhood import symmetric_weights
from fglaudit.graph import ClientGraph
from fglaudit.nn.graph_transformer import Dropout, Weights, linear, take
from fglaudit.nn.sparse import SparseMatrix


def propagation(edge_index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, columns and values [e + n] of A for a graph of ``count`` nodes without self-loops."""
    loops = torch.arange(count)
    row, column = torch.cat([edge_index, loops.expand(2, -1)], 1)
    return row, column, symmetric_weights(row, column, torch.bincount(edge_index[0], minlength=count))


def propagated(edge_index: Tensor, x: Tensor) -> Tensor:
    """Return ``A x`` [n, F]."""
    row, column, values = propagation(edge_index, len(x))
    return SparseMatrix.from_entries(row, column, values, (len(x), len(x))) @ x.float()


def with_propagated_rows(client: ClientGraph) -> ClientGraph:
    """Return ``client`` with rows ``A x``."""
    return replace(client, x=propagated(client.edge_index, client.x))


def hidden(weights: Weights, inputs: Tensor, adjacency: SparseMatrix, dropout: Dropout) -> Tensor:
    """Return the second layer's outputs before its relu [K, n, d] from ``inputs`` ``A x W1 + b1`` [K, n, d]."""
    mapped = dropout(functional.relu(inputs)) @ weights["hidden.weight"]
    return (adjacency @ mapped.flatten(0, 1)).view_as(mapped) + weights["hidden.bias"].unsqueeze(1)


@dataclass(frozen=True)
class GraphBatch:
    """Some nodes of every client, computed on its whole subgraph; satisfies
    :class:`fglaudit.federated.subgraph_training.Batch`.

    Attributes:
        nodes: [K, m]; None: all of them.
    """

    adjacency: SparseMatrix
    reached: Tensor
    nodes: Tensor | None

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        rows = hidden(weights, inputs, self.adjacency, dropout)
        rows = dropout(functional.relu(rows if self.nodes is None else take(rows, self.nodes)))
        return linear(weights, "classes", rows)


@dataclass(frozen=True)
class FullGraph:
    """The clients' subgraphs; satisfies :class:`fglaudit.federated.subgraph_training.Surroundings`.

    Attributes:
        adjacency: block-diagonal [K n, K n].
        present: which rows are nodes [K, n].
    """

    adjacency: SparseMatrix
    present: Tensor

    @staticmethod
    def of(clients: Sequence[ClientGraph], present: Tensor) -> FullGraph:
        """Set up the graphs, n nodes per client."""
        size, parts = present.shape[1], []
        for k, client in enumerate(clients):
            row, column, values = propagation(client.edge_index, len(client.nodes))
            parts.append((row + k * size, column + k * size, values))
        row, column, values = (torch.cat(part).to(present.device) for part in zip(*parts, strict=True))
        whole = (present.numel(), present.numel())
        return FullGraph(SparseMatrix.from_entries(row, column, values, whole), present)

    def draw(self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator) -> Sequence[GraphBatch]:
        return [GraphBatch(self.adjacency, self.present, nodes) for nodes in batches]

    def everyone(self, rng: torch.Generator) -> GraphBatch:
        return GraphBatch(self.adjacency, self.present, None)
