"""M GCNs on one graph at once: the model axis is a tensor dimension, so that many shadow models train as one batch.

All models share the graph and its features; they differ in their weights and in the nodes whose labels are in their
loss. The first layer multiplies the shared sparse features with all models' weights side by side, [N, F] x [F, M H].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_known
from fglaudit.nn.gcn import SPARSE_BELOW
from fglaudit.nn.sparse import SparseMatrix
from fglaudit.nn.weights import Layout, glorot, unflatten
from fglaudit.rng import moved, split


@dataclass(frozen=True)
class SharedGraph:
    """A graph as every model sees it.

    Attributes:
        x: features [N, F], sparse where few entries are non-zero.
        adjacency: ``(D + I)^-1/2 (Adj + I) (D + I)^-1/2`` [N, N].
    """

    x: SparseMatrix | Tensor
    adjacency: SparseMatrix

    @staticmethod
    def of(x: Tensor, edge_index: Tensor) -> SharedGraph:
        """Return the graph of features ``x`` [N, F] and undirected edges [2, E] without self-loops."""
        n = len(x)
        return SharedGraph(_rows(x), _normalised(edge_index, n))

    def propagated(self, values: Tensor) -> Tensor:
        """Return the sums over neighbourhoods of ``values`` [N, M, d], as [N, M, d]."""
        return (self.adjacency @ values.flatten(1).contiguous()).view(values.shape)


@dataclass(frozen=True)
class OwnGraphs:
    """The same nodes with other edges for every model.

    Attributes:
        x: as of :class:`SharedGraph`.
        adjacency: of all M models' graphs side by side, block by block [M N, M N].
    """

    x: SparseMatrix | Tensor
    adjacency: SparseMatrix

    @staticmethod
    def of(x: Tensor, edge_index: Tensor, kept: Tensor) -> OwnGraphs:
        """Return the graphs of features ``x`` [N, F] and, of undirected edges [2, E], those that each model has
        ``kept`` [M, E]; both directions of an edge alike."""
        model, edge = kept.nonzero(as_tuple=True)
        edges = edge_index[:, edge] + model * len(x)
        return OwnGraphs(_rows(x), _normalised(edges, len(kept) * len(x)))

    def propagated(self, values: Tensor) -> Tensor:
        """See :meth:`SharedGraph.propagated`."""
        nodes, models, width = values.shape
        stacked = values.transpose(0, 1).reshape(models * nodes, width)
        return (self.adjacency @ stacked).view(models, nodes, width).transpose(0, 1)


def _rows(x: Tensor) -> SparseMatrix | Tensor:
    row, column = x.nonzero(as_tuple=True)
    if len(row) > SPARSE_BELOW * x.numel():
        return x.float()
    return SparseMatrix.from_entries(row, column, x[row, column].float(), (len(x), x.shape[1]))


def _normalised(edge_index: Tensor, n: int) -> SparseMatrix:
    degrees = torch.bincount(edge_index[0], minlength=n).double() + 1
    loops = torch.arange(n, device=edge_index.device)
    row, column = torch.cat([edge_index, loops.expand(2, -1)], 1)
    weight = (degrees[row] * degrees[column]).rsqrt().float()
    return SparseMatrix.from_entries(row, column, weight, (n, n))


OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class EnsembleSettings:
    """How every model is trained: ``steps`` full-batch steps on the mean loss of its own training nodes.

    Attributes:
        weight_decay: L2 penalty ``weight_decay / 2 ||W||^2``.
        optimizer: "adam" or "sgd".
    """

    hidden: int = 16
    layers: int = 2
    steps: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    dropout: float = 0.0
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        require_known(self, optimizer=OPTIMIZERS)


def ensemble_logits(
    graph: SharedGraph | OwnGraphs,
    weights: Mapping[str, Tensor],
    dropout: float = 0.0,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Return the logits of all nodes under all models [M, N, C].

    Args:
        weights: [M, in, out] per layer, in order.
        dropout: share of hidden units dropped between layers; ``rng`` draws it, None evaluates.
    """
    hidden: Tensor | None = None
    for weight in weights.values():
        models, _, width = weight.shape
        if hidden is None:
            mapped = graph.x @ weight.transpose(0, 1).flatten(1)  # [N, M out]
        else:
            hidden = functional.relu(hidden)
            if rng is not None and dropout > 0:
                kept = torch.rand(hidden.shape, generator=rng, device=hidden.device) >= dropout
                hidden = hidden * kept / (1 - dropout)
            mapped = torch.bmm(hidden.transpose(0, 1), weight).transpose(0, 1).flatten(1)
        hidden = graph.propagated(mapped.view(-1, models, width))
    assert hidden is not None
    return hidden.transpose(0, 1)


def train_ensemble(
    graph: SharedGraph | OwnGraphs,
    layout: Layout,
    labels: Tensor,
    members: Tensor,
    settings: EnsembleSettings,
    rng: torch.Generator,
) -> Tensor:
    """Train one model per row of ``members`` and return them [M, D], on the device of the graph, where labels and
    members are too.

    Args:
        layout: of a GCN, :func:`fglaudit.nn.weights.gcn_layout`.
        labels: classes [N].
        members: whose losses are in the mean [M, N], or with which weight; at least one node in every row.
        rng: on the CPU; draws the first weights, afresh for every model, and the dropout.
    """
    starts = split(rng, "weights")
    vectors = torch.stack([glorot(layout, starts) for _ in range(len(members))]).to(labels.device)
    weights = {name: weight.clone().requires_grad_() for name, weight in unflatten(vectors, layout).items()}
    total = members.sum(1, keepdim=True)
    share = members / torch.where(total > 0, total, torch.ones_like(total))
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(list(weights.values()), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    dropout = moved(split(rng, "dropout"), labels.device)
    with torch.enable_grad():
        for _ in range(settings.steps):
            scores = ensemble_logits(graph, weights, settings.dropout, dropout).flatten(0, 1)
            # No weight belongs to two models: the gradient of the sum is every model's own.
            losses = functional.cross_entropy(scores, labels.repeat(len(members)), reduction="none")
            optimizer.zero_grad()
            (losses.view_as(share) * share).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return torch.cat([weight.detach().flatten(1) for weight in weights.values()], 1)
