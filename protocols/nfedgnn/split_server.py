"""The server's half of a two-layer GNN whose first weights are at the users (nFedGNN, section 3.2 and appendix D).

The server has the topology and the users' latents ``xbar_i = x_i W_i``; it computes the propagation or attention of the
first layer, the whole second layer and the graph-Laplacian regulariser. There are no biases, as in the equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.nn.gat import softmax_scores
from fglaudit.nn.sparse import SparseMatrix


class Network(Protocol):
    """The layers at the server."""

    def logits(self, latents: Tensor, weights: Sequence[Tensor], dropout: Dropout | None = None) -> Tensor:
        """Return logits [N, classes] of ``latents`` [N, D]; without ``dropout`` as in testing."""
        ...


@dataclass(frozen=True)
class Dropout:
    """Zero a share of numbers, drawn by ``rng`` (on the device of the numbers), and scale the others."""

    share: float
    rng: torch.Generator

    def __call__(self, values: Tensor) -> Tensor:
        if self.share == 0:
            return values
        kept = torch.rand(values.shape, generator=self.rng, device=values.device) >= self.share
        return values * kept / (1 - self.share)


@dataclass(frozen=True)
class SplitGcn:
    """Equation (5): ``softmax(A ReLU(A Xbar) W)``, A the symmetrically normalised adjacency with self-loops."""

    adjacency: SparseMatrix

    @staticmethod
    def on(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> SplitGcn:
        """Normalise the edges [2, E] of a graph."""
        row, column = with_self_loops(edge_index, num_nodes)
        scale = torch.bincount(row, minlength=num_nodes).double().rsqrt()
        weights = (scale[row] * scale[column]).to(dtype)
        return SplitGcn(SparseMatrix.from_entries(row, column, weights, (num_nodes, num_nodes)))

    def logits(self, latents: Tensor, weights: Sequence[Tensor], dropout: Dropout | None = None) -> Tensor:
        hidden = functional.relu(self.adjacency @ latents)
        if dropout is not None:
            hidden = dropout(hidden)
        return self.adjacency @ (hidden @ weights[0])


@dataclass(frozen=True)
class SplitGat:
    """Appendix D: attention over the latents per head, heads joined, ELU, then a layer with one head.

    Dropout as in the original GAT: on the attention weights of both layers and on the input of the second.
    """

    row: Tensor
    column: Tensor
    num_nodes: int

    @staticmethod
    def on(edge_index: Tensor, num_nodes: int) -> SplitGat:
        """Attend over the edges [2, E] of a graph and every node itself."""
        row, column = with_self_loops(edge_index, num_nodes)
        return SplitGat(row, column, num_nodes)

    def logits(self, latents: Tensor, weights: Sequence[Tensor], dropout: Dropout | None = None) -> Tensor:
        own, neighbor, weight, own_2, neighbor_2 = weights
        first = self._attend(latents.view(len(latents), *own.shape), own, neighbor, dropout)
        hidden = functional.elu(first.flatten(1))
        if dropout is not None:
            hidden = dropout(hidden)
        return self._attend((hidden @ weight).unsqueeze(1), own_2, neighbor_2, dropout).squeeze(1)

    def _attend(self, z: Tensor, own: Tensor, neighbor: Tensor, dropout: Dropout | None) -> Tensor:
        """Return the attention-weighted sums [N, heads, out] of ``z`` [N, heads, out]."""
        scores = (z * own).sum(-1).index_select(0, self.row) + (z * neighbor).sum(-1).index_select(0, self.column)
        e = softmax_scores(scores, self.row, self.num_nodes)
        total = e.new_zeros(self.num_nodes, e.shape[1]).index_add(0, self.row, e)
        attention = e / total.index_select(0, self.row)
        if dropout is not None:
            attention = dropout(attention)
        weighted = attention.unsqueeze(-1) * z.index_select(0, self.column)
        return torch.zeros_like(z).index_add(0, self.row, weighted)


@dataclass(frozen=True)
class Smoothed:
    """Latents propagated ``hops`` steps over the graph before anything else is done with them."""

    network: Network
    adjacency: SparseMatrix
    hops: int

    @staticmethod
    def on(network: Network, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, hops: int) -> Smoothed:
        """Propagate as the first layer of :class:`SplitGcn` does."""
        return Smoothed(network, SplitGcn.on(edge_index, num_nodes, dtype).adjacency, hops)

    def logits(self, latents: Tensor, weights: Sequence[Tensor], dropout: Dropout | None = None) -> Tensor:
        for _ in range(self.hops):
            latents = self.adjacency @ latents
        return self.network.logits(latents, weights, dropout)


def with_self_loops(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return targets and sources of the edges [2, E] and of one self-loop per node."""
    nodes = torch.arange(num_nodes, device=edge_index.device)
    return torch.cat([edge_index[0], nodes]), torch.cat([edge_index[1], nodes])


class Laplacian:
    """Equation (6): the mean over all i and j in N_i (i itself included) of ``||xbar_i - xbar_j||^2``.

    With the graph's Laplacian L that is ``2 trace(Xbar' L Xbar) / sum_i |N_i|``; for several heads it is the sum over
    heads, each regularised by itself.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> None:
        row, column = with_self_loops(edge_index, num_nodes)
        degrees = torch.bincount(edge_index[0], minlength=num_nodes)
        values = torch.cat([-torch.ones_like(edge_index[0]), degrees]).to(dtype)
        self._matrix = SparseMatrix.from_entries(row, column, values, (num_nodes, num_nodes))
        self._pairs = len(row)

    def __call__(self, latents: Tensor) -> Tensor:
        """Return the regulariser of ``latents`` [N, D]."""
        return 2 * (latents * (self._matrix @ latents)).sum() / self._pairs
