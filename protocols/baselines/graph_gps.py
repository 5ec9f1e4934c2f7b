"""GraphGPS (Rampasek et al. 2022) with FedGT's parts (GIN, Performer, Laplacian encoding), K clients at once.

In every layer all nodes of a client send along its edges and attend to each other: ``X_M = LN(X + GIN(X))``,
``X_T = LN(X + attention(X))``, ``X' = LN(Y + MLP(Y))`` with ``Y = X_M + X_T``, where
``GIN(x_i) = MLP((1 + epsilon) x_i + sum over neighbours of x_j)``. The original normalises over the batch (BN); here
layers are normalised per node (LN), because averages of K clients' batch statistics suit none of them.

The attention is that of ``performer``: time and memory are linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError, require_least
from fglaudit.graph import ClientGraph
from fglaudit.nn.graph_transformer import Dropout, Weights, layer_norm, linear, take
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.protocols.baselines.performer import linear_attention


@dataclass(frozen=True)
class GraphGPS:
    """The architecture.

    Attributes:
        feed_forward: width inside the last MLP of a layer.
        random_features: the Performer's r per head.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    random_features: int

    def __post_init__(self) -> None:
        require_least(self, layers=1, hidden=1, heads=1, feed_forward=1, random_features=1)
        if self.hidden % self.heads:
            raise FglauditError(
                f"hidden must be a multiple of heads; got {self.hidden} and {self.heads}; use e.g. 128 and 4"
            )

    def layout(self, num_inputs: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of one model; ``num_inputs`` are features and encoding together, in this order."""
        d = self.hidden
        maps = {"sum": (d, d), "message": (d, d), "query": (d, d), "key_value": (d, 2 * d), "output": (d, d)}
        maps |= {"expand": (d, self.feed_forward), "contract": (self.feed_forward, d)}
        layout: dict[str, tuple[int, ...]] = {"input.weight": (num_inputs, d), "input.bias": (d,)}
        for index in range(self.layers):
            name = f"layers.{index}"
            layout[f"{name}.epsilon"] = (1,)
            for part, shape in maps.items():
                layout |= {f"{name}.{part}.weight": shape, f"{name}.{part}.bias": shape[1:]}
            for norm in ("norm_local", "norm_attention", "norm_feed_forward"):
                layout |= {f"{name}.{norm}.scale": (d,), f"{name}.{norm}.shift": (d,)}
        return layout | {"classes.weight": (d, num_classes), "classes.bias": (num_classes,)}

    def logits(
        self, weights: Weights, inputs: Tensor, adjacency: SparseMatrix, present: Tensor, dropout: Dropout
    ) -> Tensor:
        """Return the class scores of all nodes [K, n, C].

        Args:
            inputs: [K, n, d].
            adjacency: block-diagonal [K n, K n].
            present: which rows are nodes [K, n].
        """
        rows = dropout(inputs)
        for index in range(self.layers):
            name = f"layers.{index}"
            sums = (1 + weights[f"{name}.epsilon"]).unsqueeze(2) * rows + (adjacency @ rows.flatten(0, 1)).view_as(rows)
            sent = linear(weights, f"{name}.message", functional.relu(linear(weights, f"{name}.sum", sums)))
            local = layer_norm(weights, f"{name}.norm_local", rows + dropout(sent))
            attended = linear(weights, f"{name}.output", self._attend(weights, name, rows, present))
            far = layer_norm(weights, f"{name}.norm_attention", rows + dropout(attended))
            both = local + far
            inner = dropout(functional.relu(linear(weights, f"{name}.expand", both)))
            rows = layer_norm(
                weights, f"{name}.norm_feed_forward", both + dropout(linear(weights, f"{name}.contract", inner))
            )
        return linear(weights, "classes", rows)

    def _attend(self, weights: Weights, name: str, rows: Tensor, present: Tensor) -> Tensor:
        """Return every node's attention output over all nodes of its client [K, n, d]; ``rows`` [K, n, d]."""

        def by_head(flat: Tensor) -> Tensor:
            return flat.reshape(*flat.shape[:2], self.heads, -1).transpose(1, 2)

        query = by_head(linear(weights, f"{name}.query", rows))
        key, value = (by_head(part) for part in linear(weights, f"{name}.key_value", rows).chunk(2, 2))
        return linear_attention(query, key, value, present, self.random_features).transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class WholeGraph:
    """The neighbourhood of a GraphGPS: every node sees its client's whole subgraph.

    Attributes:
        adjacency: block-diagonal [K n, K n].
        present: which rows are nodes [K, n].
    """

    network: GraphGPS
    adjacency: SparseMatrix
    present: Tensor

    @staticmethod
    def of(network: GraphGPS, clients: Sequence[ClientGraph], present: Tensor) -> WholeGraph:
        """Join the clients' edges."""
        count, size = present.shape
        edges = torch.cat([client.edge_index + k * size for k, client in enumerate(clients)], 1).to(present.device)
        ones = torch.ones(edges.shape[1], device=present.device)
        return WholeGraph(
            network, SparseMatrix.from_entries(edges[0], edges[1], ones, (count * size, count * size)), present
        )

    def draw(
        self, batches: Sequence[Tensor], valid: Sequence[Tensor], rng: torch.Generator
    ) -> Sequence[WholeGraphBatch]:
        return [WholeGraphBatch(self, batch) for batch in batches]

    def everyone(self, rng: torch.Generator) -> WholeGraphBatch:
        return WholeGraphBatch(self, None)


@dataclass(frozen=True)
class WholeGraphBatch:
    """Some nodes [K, m], or all; satisfies :class:`fglaudit.federated.subgraph_training.Batch`."""

    surroundings: WholeGraph
    nodes: Tensor | None

    @property
    def reached(self) -> Tensor:
        return self.surroundings.present

    def logits(self, weights: Weights, inputs: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        around = self.surroundings
        scores = around.network.logits(weights, inputs, around.adjacency, around.present, dropout)
        return scores if self.nodes is None else take(scores, self.nodes)
