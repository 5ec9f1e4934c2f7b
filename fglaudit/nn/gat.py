"""Graph attention (Velickovic et al., ICLR 2018) of K clients at once: weights are [K, ...], edges are one list.

One layer, equations (1)-(3) of FedGAT: with ``z = h W`` per head, ``x_ij = a_1 . z_i + a_2 . z_j``,
``e_ij = exp(LeakyReLU(x_ij))`` and ``h_i' = phi(sum_j e_ij z_j / sum_j e_ij)`` over the closed neighbourhood of i.
Hidden layers join their heads and apply ELU; the last layer averages its heads. There are no biases, as in the
equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_least
from fglaudit.nn.chebyshev import NEGATIVE_SLOPE, Series
from fglaudit.nn.sparse import SparseMatrix

Scores = Callable[[Tensor, Tensor, int], Tensor]
"""From edge scores ``x_ij`` [E, heads], their target rows [E] and the number of rows to ``e_ij``, up to a factor per
target."""


@dataclass(frozen=True)
class GatShape:
    """``layers - 1`` layers of ``heads`` heads with ``hidden`` units each, then ``output_heads`` averaged heads."""

    layers: int
    heads: int
    hidden: int
    output_heads: int

    def __post_init__(self) -> None:
        require_least(self, layers=1, heads=1, hidden=1, output_heads=1)

    def head_counts(self) -> list[int]:
        """Heads per layer."""
        return [self.heads] * (self.layers - 1) + [self.output_heads]

    def layout(self, num_features: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights: per layer ``weight`` [in, heads x out] (head after head), ``attention_own`` a_1 and
        ``attention_neighbor`` a_2 [heads, out]."""
        widths = [num_features, *[self.heads * self.hidden] * (self.layers - 1)]
        outputs = [self.hidden] * (self.layers - 1) + [num_classes]
        layout: dict[str, tuple[int, ...]] = {}
        for index, (width, heads, out) in enumerate(zip(widths, self.head_counts(), outputs, strict=True)):
            layout[f"layers.{index}.weight"] = (width, heads * out)
            layout[f"layers.{index}.attention_own"] = (heads, out)
            layout[f"layers.{index}.attention_neighbor"] = (heads, out)
        return layout


@dataclass(frozen=True)
class LayerWeights:
    """One layer of K clients: ``weight`` [K, in, heads x out], ``own`` and ``neighbor`` [K, heads, out]."""

    weight: Tensor
    own: Tensor
    neighbor: Tensor

    def per_head(self) -> Tensor:
        """Return ``weight`` as a view [K, in, heads, out]."""
        return self.weight.view(*self.weight.shape[:2], *self.own.shape[1:])

    def transform(self, inputs: Tensor) -> Tensor:
        """Return ``z`` [K, S, heads, out] of ``inputs`` [K, S, in]."""
        return (inputs @ self.weight).view(*inputs.shape[:2], *self.own.shape[1:])

    def score_vectors(self) -> tuple[Tensor, Tensor]:
        """Return ``b_1 = W a_1`` and ``b_2 = W a_2`` [K, heads, in] (equation 4)."""
        weight = self.per_head()
        return torch.einsum("kfho,kho->khf", weight, self.own), torch.einsum("kfho,kho->khf", weight, self.neighbor)


def layer_weights(weights: Mapping[str, Tensor]) -> list[LayerWeights]:
    """Group weights [K, ...] by layer."""
    tensors = list(weights.values())
    return [LayerWeights(*tensors[first : first + 3]) for first in range(0, len(tensors), 3)]


def initial_model(layout: Mapping[str, tuple[int, ...]], rng: torch.Generator) -> Tensor:
    """Draw one model [D], uniform with bound ``sqrt(6 / (in + out))`` per head (Glorot and Bengio 2010)."""
    parts, out = [], 0
    shapes = list(layout.values())
    for index, shape in enumerate(shapes):
        if index % 3 == 0:
            out = shapes[index + 1][1]
            bound = math.sqrt(6 / (shape[0] + out))
        else:
            bound = math.sqrt(6 / (1 + 2 * out))  # a_1 and a_2 are one vector [2 out] of the original GAT
        parts.append((torch.rand(math.prod(shape), generator=rng) * 2 - 1) * bound)
    return torch.cat(parts)


@torch.no_grad()
def project(weights: Mapping[str, Tensor], layers: int) -> None:
    """Project the weights [K, ...] of the first ``layers`` layers in place onto the bounds of Assumption 2.

    Per head, the singular values of W and the norms of a_1 and a_2 become at most 1; with feature rows of norm at most
    1 every score of the first layer then lies in [-2, 2]. A mean of models within the bounds keeps them.
    """
    for layer in layer_weights(weights)[:layers]:
        per_head = layer.per_head()
        gram = torch.einsum("kfho,kfhp->khop", per_head, per_head)
        squares, directions = torch.linalg.eigh(gram)
        excess = (1 - squares.clamp(min=1).rsqrt()).unsqueeze(-2)
        per_head.sub_(torch.einsum("kfho,khop->kfhp", per_head, (directions * excess) @ directions.transpose(-1, -2)))
        for vector in (layer.own, layer.neighbor):
            vector.div_(vector.norm(dim=-1, keepdim=True).clamp(min=1))


@torch.no_grad()
def project_scores(layer: LayerWeights, domain: float) -> None:
    """Shrink a_1 and a_2 of every head in place so that ``||W a_1|| + ||W a_2|| <= domain``.

    With feature rows of norm at most 1 every score of the layer then lies in [-domain, domain]; W itself does not
    change.
    """
    own, neighbor = layer.score_vectors()
    reach = own.norm(dim=-1, keepdim=True) + neighbor.norm(dim=-1, keepdim=True)
    factor = domain / reach.clamp(min=domain)
    layer.own.mul_(factor)
    layer.neighbor.mul_(factor)


@dataclass(frozen=True)
class LayerEdges:
    """Edges ``target <- source`` [E] of one layer, among the padded rows of all clients.

    Attributes:
        target: row of the layer's output grid [K x rows].
        center: the same node's row in the input grid [K x inputs].
        source: the neighbour's row in the input grid.
        rows: output rows per client.
    """

    target: Tensor
    center: Tensor
    source: Tensor
    rows: int


def softmax_scores(scores: Tensor, target: Tensor, rows: int) -> Tensor:
    """Return ``exp(LeakyReLU(scores))``, divided by each target's largest so that nothing overflows."""
    active = functional.leaky_relu(scores, NEGATIVE_SLOPE)
    index = target.unsqueeze(1).expand_as(active)
    top = torch.zeros(rows, active.shape[1], dtype=active.dtype, device=active.device)
    top = top.scatter_reduce(0, index, active.detach(), "amax", include_self=False)
    return (active - top.index_select(0, target)).exp()


def series_scores(series: Series) -> Scores:
    """Return ``e_ij`` by a series in place of the exact function."""
    return lambda scores, target, rows: series(scores)


def edge_scores(z: Tensor, layer: LayerWeights, edges: LayerEdges) -> Tensor:
    """Return ``x_ij`` [E, heads] from ``z`` [K, S, heads, out]."""
    own = (z * layer.own.unsqueeze(1)).sum(-1).flatten(0, 1)
    neighbor = (z * layer.neighbor.unsqueeze(1)).sum(-1).flatten(0, 1)
    return own.index_select(0, edges.center) + neighbor.index_select(0, edges.source)


def attend(z: Tensor, layer: LayerWeights, edges: LayerEdges, scores: Scores) -> Tensor:
    """Return the attention-weighted means [K, rows, heads, out] of ``z`` [K, S, heads, out]; 0 in padded rows."""
    clients = len(z)
    e = scores(edge_scores(z, layer, edges), edges.target, clients * edges.rows)
    denominator = e.new_zeros(clients * edges.rows, e.shape[1]).index_add(0, edges.target, e)
    weighted = e.unsqueeze(-1) * z.flatten(0, 1).index_select(0, edges.source)
    numerator = e.new_zeros(clients * edges.rows, *z.shape[2:]).index_add(0, edges.target, weighted)
    padded = torch.zeros_like(denominator, dtype=torch.bool).index_fill(0, edges.target, True).logical_not()
    mean = numerator / denominator.masked_fill(padded, 1).unsqueeze(-1)
    return mean.view(clients, edges.rows, *z.shape[2:])


@dataclass(frozen=True)
class EdgeLayer:
    """The first layer evaluated edge by edge on known features.

    Attributes:
        inputs: features of the input rows, dense [K, S, F] or sparse and block-diagonal [K S, K F].
        scores: exact (:func:`softmax_scores`) or by a series.
    """

    inputs: SparseMatrix | Tensor
    input_rows: int
    edges: LayerEdges
    scores: Scores

    def transformed(self, layer: LayerWeights) -> Tensor:
        """Return ``z`` [K, S, heads, out]."""
        if isinstance(self.inputs, Tensor):
            return layer.transform(self.inputs)
        flat = self.inputs @ layer.weight.flatten(0, 1)
        return flat.view(len(layer.weight), self.input_rows, *layer.own.shape[1:])

    def __call__(self, layer: LayerWeights) -> Tensor:
        """Return the layer's means [K, rows, heads, out]."""
        return attend(self.transformed(layer), layer, self.edges, self.scores)

    @torch.no_grad()
    def outside(self, layer: LayerWeights, domain: float) -> Tensor:
        """Return the share of edge scores outside [-domain, domain], rounding aside."""
        scores = edge_scores(self.transformed(layer), layer, self.edges)
        share: Tensor = (scores.abs() > domain * (1 + 1e-4)).float().mean()
        return share


def unit_ball(x: Tensor) -> Tensor:
    """Return rows [N, F] scaled to norm at most 1 (Assumption 3); zero rows stay zero."""
    norm: Tensor = x.norm(dim=1, keepdim=True)
    return x / norm.clamp(min=1)
