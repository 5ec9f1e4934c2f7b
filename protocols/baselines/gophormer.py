"""Gophormer (Zhao et al. 2021, arXiv:2110.13094): a transformer over sampled ego-graphs, K clients at once.

Node2Seq: a node's sequence is the node, nodes drawn around it as in GraphSAGE, and a few global nodes, which are
weights of the model and the same in every sequence. All entries of a sequence attend to each other with
proximity-enhanced scores ``q_i k_j / sqrt(d_K) + b' phi_ij``, ``phi_ij = (1[i = j], A~_ij, A~^2_ij, ...)`` and a
separate entry for pairs with a global node; b is learned per layer and head. The first node's last representation is
classified. Layers are pre-norm and have the weights of :class:`fglaudit.nn.graph_transformer.GraphTransformer`.

A node that is drawn twice for one sequence counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_least
from fglaudit.nn.graph_transformer import (
    Dropout,
    GraphTransformer,
    Weights,
    attend_pairs,
    feed_forward,
    layer_norm,
    linear,
    sequence_blocks,
    take,
)
from fglaudit.protocols.fedgt.proximity import Proximity


@dataclass(frozen=True)
class Sequences:
    """Ego-graphs of m nodes of every client; what holds numbers for every pair is made when it is asked for.

    Attributes:
        nodes: [K, m, s]; the first of each is the node itself. The g ``global_nodes`` follow them.
        proximity: looked up for all pairs within a sequence.
    """

    nodes: Tensor
    proximity: Proximity
    global_nodes: int

    def part(self, rows: slice) -> Sequences:
        """Return some of the m ego-graphs."""
        return Sequences(self.nodes[:, rows], self.proximity, self.global_nodes)

    @property
    def repeated(self) -> Tensor:
        """Entries that occur earlier in the sequence [K, m, s + g]."""
        return functional.pad(self._equal().tril(-1).any(3), (0, self.global_nodes))

    @property
    def phi(self) -> Tensor:
        """Proximities of pairs [K, m, s + g, s + g, v]."""
        near = self.proximity.among(self.nodes)
        itself = self._equal().unsqueeze(4).to(near)
        views = torch.cat([itself, near, torch.zeros_like(itself)], 4)
        size, beyond = self.nodes.shape[2], (0, self.global_nodes)
        phi = functional.pad(views, (0, 0, *beyond, *beyond))
        phi[:, :, size:, :, -1] = phi[:, :, :, size:, -1] = 1
        return phi

    def _equal(self) -> Tensor:
        return self.nodes.unsqueeze(3) == self.nodes.unsqueeze(2)


@dataclass(frozen=True)
class Gophormer:
    """The architecture; ``powers`` of the adjacency in phi, ``global_nodes`` per model."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    global_nodes: int
    powers: int

    def __post_init__(self) -> None:
        require_least(self, global_nodes=0, powers=1)
        self._transformer()

    def _transformer(self) -> GraphTransformer:
        return GraphTransformer(self.layers, self.hidden, self.heads, self.feed_forward)

    def layout(self, num_inputs: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of one model."""
        layout = self._transformer().layout(num_inputs, num_classes) | {
            "global.weight": (self.global_nodes, self.hidden)
        }
        return layout | {
            f"layers.{index}.proximity.weight": (self.powers + 2, self.heads) for index in range(self.layers)
        }

    def logits(self, weights: Weights, inputs: Tensor, egos: Sequences, dropout: Dropout) -> Tensor:
        """Return the class scores [K, m, C] from the projected ``inputs`` [K, n, d]."""
        table = torch.cat([dropout(inputs), weights["global.weight"]], 1)
        count, length = egos.nodes.shape[1], egos.nodes.shape[2] + self.global_nodes
        widest = length * max(length * (self.powers + 2 + self.heads), 2 * self.hidden, self.feed_forward)
        parts = sequence_blocks(count, len(inputs) * widest, dropout, inputs.device)
        projected = self._projected(weights, 0, table)  # of distinct rows, once for all sequences
        found = [self._first_nodes(weights, table, projected, egos.part(part), dropout) for part in parts]
        return linear(weights, "classes", layer_norm(weights, "norm", torch.cat(found, 1)))

    def _projected(self, weights: Weights, index: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return layer ``index``'s queries [K, r, d], and its keys and values side by side [K, r, 2 d], of ``rows``."""
        normed = layer_norm(weights, f"layers.{index}.norm_attention", rows)
        return linear(weights, f"layers.{index}.query", normed), linear(weights, f"layers.{index}.key_value", normed)

    def _first_nodes(
        self, weights: Weights, rows: Tensor, projected: tuple[Tensor, Tensor], egos: Sequences, dropout: Dropout
    ) -> Tensor:
        """Return the last layer's outputs for the first nodes of some ego-graphs [K, m', d].

        Args:
            rows: the first layer's inputs, of distinct nodes and then the global ones [K, n + g, d].
            projected: what :meth:`_projected` returns of them.
        """
        clients, count, _ = egos.nodes.shape
        size, phi, repeated = rows.shape[1], egos.phi, egos.repeated[:, :, None, None]
        everywhere = torch.arange(size - self.global_nodes, size, device=rows.device).expand(clients, count, -1)
        where = torch.cat([egos.nodes, everywhere], 2)
        rows, query, key_value = (take(each, where) for each in (rows, *projected))
        for index in range(self.layers):
            name, width = f"layers.{index}", 1 if index == self.layers - 1 else None
            if index:
                query, key_value = (
                    each.view(clients, count, -1, each.shape[2]) for each in self._projected(weights, index, rows)
                )
                rows = rows.view(clients, count, -1, self.hidden)
            key, value = key_value.chunk(2, 3)
            bias = torch.einsum("kmijv,kvh->kmhij", phi[:, :, :width], weights[f"{name}.proximity.weight"])
            bias = bias.masked_fill(repeated, -torch.inf)
            attended = attend_pairs(query[:, :, :width], key, value, bias, self.heads).flatten(1, 2)
            residual = rows[:, :, :width].flatten(1, 2)
            rows = feed_forward(weights, name, residual + dropout(linear(weights, f"{name}.output", attended)), dropout)
        return rows
