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

from fglaudit.errors import FglauditError
from fglaudit.nn.graph_transformer import Dropout, GraphTransformer, Weights, feed_forward, layer_norm, linear, take
from fglaudit.protocols.fedgt.proximity import Proximity


@dataclass(frozen=True)
class Sequences:
    """Ego-graphs of m nodes of every client.

    Attributes:
        nodes: [K, m, s]; the first of each is the node itself. The g global nodes follow them.
        phi: proximities of pairs [K, m, s + g, s + g, v].
        repeated: entries that occur earlier in the sequence [K, m, s + g].
    """

    nodes: Tensor
    phi: Tensor
    repeated: Tensor

    @staticmethod
    def of(nodes: Tensor, proximity: Proximity, global_nodes: int) -> Sequences:
        """Look up all pairs of ``nodes`` [K, m, s]."""
        equal = nodes.unsqueeze(3) == nodes.unsqueeze(2)
        near = proximity.among(nodes)
        itself = equal.unsqueeze(4).to(near)
        views = torch.cat([itself, near, torch.zeros_like(itself)], 4)
        size, beyond = nodes.shape[2], (0, global_nodes)
        phi = functional.pad(views, (0, 0, *beyond, *beyond))
        phi[:, :, size:, :, -1] = phi[:, :, :, size:, -1] = 1
        return Sequences(nodes, phi, functional.pad(equal.tril(-1).any(3), beyond))


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
        for field, least in (("global_nodes", 0), ("powers", 1)):
            if getattr(self, field) < least:
                raise FglauditError(f"a Gophormer needs {field} >= {least}; got {getattr(self, field)}; raise it")
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
        clients, count, _ = egos.nodes.shape
        rows = torch.cat([dropout(inputs), weights["global.weight"]], 1)
        everywhere = torch.arange(inputs.shape[1], rows.shape[1], device=rows.device).expand(clients, count, -1)
        where: Tensor | None = torch.cat([egos.nodes, everywhere], 2)

        def sequences(table: Tensor) -> Tensor:
            """Return [K, m, s + g, ...]: the first layer works on a table of distinct rows, later ones on sequences."""
            return table.view(clients, count, -1, table.shape[2]) if where is None else take(table, where)

        for index in range(self.layers):
            name, width = f"layers.{index}", 1 if index == self.layers - 1 else None
            normed = layer_norm(weights, f"{name}.norm_attention", rows)
            query = sequences(linear(weights, f"{name}.query", normed))[:, :, :width]
            key, value = sequences(linear(weights, f"{name}.key_value", normed)).chunk(2, 3)
            bias = torch.einsum("kmijv,kvh->kmhij", egos.phi[:, :, :width], weights[f"{name}.proximity.weight"])
            bias = bias.masked_fill(egos.repeated[:, :, None, None], -torch.inf)
            attended = self._attend(query, key, value, bias).flatten(1, 2)
            residual = sequences(rows)[:, :, :width].flatten(1, 2)
            rows = feed_forward(weights, name, residual + dropout(linear(weights, f"{name}.output", attended)), dropout)
            where = None
        return linear(weights, "classes", layer_norm(weights, "norm", rows))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Return the attention outputs [K, m, w, d] of queries [K, m, w, d] over keys and values [K, m, s, d]."""

        def by_head(rows: Tensor) -> Tensor:
            return rows.reshape(*rows.shape[:3], self.heads, -1).transpose(2, 3)

        share = (by_head(query) @ by_head(key).transpose(3, 4) * (self.hidden // self.heads) ** -0.5 + bias).softmax(4)
        gathered: Tensor = (share @ by_head(value)).transpose(2, 3).flatten(3)
        return gathered
