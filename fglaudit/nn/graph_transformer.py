"""Pre-norm graph transformer with hybrid attention (FedGT, sections 3.2 and 4.1), K clients at once.

Weights are [K, ...]. ``H0 = [x, PE] W_in + b``, then L layers ``H' = MHA(LN(H)) + H``, ``H = FFN(LN(H')) + H'``
(equations (2)-(6)), a last layer norm and a linear output. In every layer a node attends to n_s sampled nodes near it
and to n_g global nodes.

The global nodes live in the space of H0 (one codebook per client, section G counts ``n_g d`` numbers). They pass
through the same layers as the nodes, attending to each other only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import FglauditError, require_least

Weights = Mapping[str, Tensor]

NUMBERS_AT_ONCE = 2**25
"""Keys and values of neighbours that are gathered at once, for all clients; 128 MiB in single precision."""
NUMBERS_IN_CACHE = 2**22
"""The same on a CPU, where larger blocks leave the cache before they are read again and cost three times the time."""
SEQUENCES_IN_CACHE = 2**20
"""Of the widest table of a block of sequences that is classified at once on a CPU: larger ones cost twice the time."""
PAIR_COST = 4
"""Cost of one pair's score in one head, relative to one number of a gathered row (measured on a CPU)."""


def initial_model(layout: Mapping[str, tuple[int, ...]], rng: torch.Generator) -> Tensor:
    """Draw one model [D]: matrices uniform with bound ``sqrt(6 / (in + out))``, scales 1, biases and shifts 0."""
    parts = []
    for name, shape in layout.items():
        if len(shape) == 2:
            parts.append((torch.rand(math.prod(shape), generator=rng) * 2 - 1) * math.sqrt(6 / sum(shape)))
        else:
            parts.append(torch.full(shape, 1.0 if name.endswith("scale") else 0.0))
    return torch.cat(parts)


def linear(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """Return ``rows`` [K, m, in] through an affine map [K, m, out]."""
    return torch.baddbmm(weights[f"{name}.bias"].unsqueeze(1), rows, weights[f"{name}.weight"])


def layer_norm(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """Normalise ``rows`` [K, m, d] over d, then scale and shift."""
    plain = functional.layer_norm(rows, rows.shape[-1:])
    return torch.addcmul(weights[f"{name}.shift"].unsqueeze(1), plain, weights[f"{name}.scale"].unsqueeze(1))


class Dropout:
    """Drops a share of entries, drawn by a generator on the tensors' device; ``rng`` None keeps everything."""

    def __init__(self, share: float, rng: torch.Generator | None) -> None:
        self.share, self.rng = share, rng

    def __call__(self, rows: Tensor) -> Tensor:
        if self.rng is None or self.share == 0:
            return rows
        kept = torch.empty_like(rows).bernoulli_(1 - self.share, generator=self.rng)
        return rows * kept.mul_(1 / (1 - self.share))


@dataclass(frozen=True)
class Neighborhood:
    """The nodes that the targets of one layer attend to, as positions in the layer's inputs.

    Attributes:
        targets: [K, m]; None: all inputs, in their order.
        neighbors: [K, m, s]; repeated ones count repeatedly.
        log_counts: added to the neighbours' scores [K, m, s], -inf for padding; None: nothing.
    """

    targets: Tensor | None
    neighbors: Tensor
    log_counts: Tensor | None

    def part(self, rows: slice) -> Neighborhood:
        """Return the neighbourhoods of some targets."""
        targets, logs = self.targets, self.log_counts
        return Neighborhood(
            None if targets is None else targets[:, rows],
            self.neighbors[:, rows],
            None if logs is None else logs[:, rows],
        )


def take(rows: Tensor, index: Tensor) -> Tensor:
    """Return ``rows`` [K, n, d] at ``index`` [K, ...] as [K, ..., d]."""
    offset = (torch.arange(len(rows), device=rows.device) * rows.shape[1]).view(-1, *[1] * (index.dim() - 1))
    return rows.flatten(0, 1).index_select(0, (index + offset).flatten()).view(*index.shape, rows.shape[2])


def row_blocks(rows: int, numbers_per_row: int, at_once: int | None = None) -> list[slice]:
    """Cut ``rows`` into blocks of at most ``at_once`` numbers, ``NUMBERS_AT_ONCE`` if it is None."""
    size = max(1, (at_once or NUMBERS_AT_ONCE) // numbers_per_row)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def sequence_blocks(count: int, numbers: int, dropout: Dropout, device: torch.device) -> list[slice]:
    """Cut ``count`` sequences, each of ``numbers`` numbers in its widest table, into what is computed at once.

    In training all are: dropout is drawn for all of them together. So are they on a GPU.
    """
    if dropout.rng is None and device.type == "cpu":
        return row_blocks(count, numbers, SEQUENCES_IN_CACHE)
    return [slice(0, count)]


def attend_pairs(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, heads: int, dropout: Dropout | None = None
) -> Tensor:
    """Return the attention outputs [K, m, w, d] of queries [K, m, w, d] over keys and values [K, m, s, d], where
    ``bias`` [K, m, heads, w, s] is added to the scores of pairs."""

    def by_head(rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:3], heads, -1).transpose(2, 3)

    scale = (query.shape[3] // heads) ** -0.5
    share = (by_head(query) @ by_head(key).transpose(3, 4) * scale + bias).softmax(4)
    share = share if dropout is None else dropout(share)
    gathered: Tensor = (share @ by_head(value)).transpose(2, 3).flatten(3)
    return gathered


def _attend(query: Tensor, key_value: Tensor, where: Neighborhood, far_key: Tensor, far_value: Tensor) -> Tensor:
    """Return the targets' attention outputs over their neighbours and the global nodes, heads side by side [K, m, d].

    Args:
        query: of the targets [K, m, heads, d_K].
        key_value: of all inputs, keys and values side by side [K, n, 2 d].
        far_key, far_value: of the global nodes [K, g, heads, d_K].
    """
    size, width = key_value.shape[1:]
    if PAIR_COST * size * query.shape[2] < where.neighbors.shape[2] * width:
        return _attend_all_pairs(query, key_value, where, far_key, far_value)
    near = take(key_value, where.neighbors).view(*where.neighbors.shape, 2, *query.shape[2:])
    near_key, near_value = near.unbind(3)
    near_score = (query.unsqueeze(2) * near_key).sum(4)  # [K, m, s, heads]
    if where.log_counts is not None:
        near_score = near_score + where.log_counts.unsqueeze(3)
    far_score = torch.einsum("kmhd,kghd->kmgh", query, far_key)
    share = torch.cat([near_score, far_score], 2).softmax(2)
    near_share, far_share = share[:, :, : near_score.shape[2]], share[:, :, near_score.shape[2] :]
    attended = (near_share.unsqueeze(4) * near_value).sum(2) + torch.einsum("kmgh,kghd->kmhd", far_share, far_value)
    return attended.flatten(2)


def _attend_all_pairs(
    query: Tensor, key_value: Tensor, where: Neighborhood, far_key: Tensor, far_value: Tensor
) -> Tensor:
    """Compute :func:`_attend` (same shapes) by matrix products over all inputs, for clients with few nodes."""
    counts = torch.ones_like(where.neighbors, dtype=query.dtype)
    if where.log_counts is not None:
        counts = where.log_counts.exp().to(query)
    pairs = counts.new_zeros(*counts.shape[:2], key_value.shape[1]).scatter_add_(2, where.neighbors, counts)
    near = key_value.view(*key_value.shape[:2], 2, *query.shape[2:])
    keys, values = (
        torch.cat(both, 1).transpose(1, 2) for both in zip(near.unbind(2), (far_key, far_value), strict=True)
    )
    bias = torch.cat([pairs.log(), pairs.new_zeros(*pairs.shape[:2], far_key.shape[1])], 2)
    share = (query.transpose(1, 2) @ keys.transpose(2, 3) + bias.unsqueeze(1)).softmax(3)
    return (share @ values).transpose(1, 2).flatten(2)


def feed_forward(weights: Weights, name: str, rows: Tensor, dropout: Dropout) -> Tensor:
    """Return ``rows`` [K, m, d] after layer ``name``'s feed-forward block with norm and residual (equation (6))."""
    inner = functional.gelu(linear(weights, f"{name}.expand", layer_norm(weights, f"{name}.norm_feed_forward", rows)))
    return rows + dropout(linear(weights, f"{name}.contract", inner))


def hybrid_layer(
    weights: Weights, index: int, heads: int, rows: Tensor, where: Neighborhood, global_nodes: Tensor, dropout: Dropout
) -> tuple[Tensor, Tensor]:
    """Apply layer ``index``.

    Args:
        weights: [K, ...] by name.
        rows: inputs [K, n, d].
        global_nodes: [K, g, d], in the space of the inputs.

    Returns:
        The targets' outputs [K, m, d] and the global nodes in the space of the outputs [K, g, d].
    """
    name, (clients, _, d) = f"layers.{index}", rows.shape
    normed = layer_norm(weights, f"{name}.norm_attention", rows)
    normed_global = layer_norm(weights, f"{name}.norm_attention", global_nodes)
    targets = normed if where.targets is None else take(normed, where.targets)
    residual = rows if where.targets is None else take(rows, where.targets)
    query = (linear(weights, f"{name}.query", targets) * (d // heads) ** -0.5).view(clients, -1, heads, d // heads)
    key_value = linear(weights, f"{name}.key_value", normed)
    far = linear(weights, f"{name}.key_value", normed_global).view(clients, -1, 2, heads, d // heads)
    far_key, far_value = far.unbind(2)
    at_once = NUMBERS_IN_CACHE if rows.device.type == "cpu" else NUMBERS_AT_ONCE
    numbers = clients * min(where.neighbors.shape[2] * 2 * d, PAIR_COST * rows.shape[1] * heads)
    attended = torch.cat(
        [
            _attend(query[:, part], key_value, where.part(part), far_key, far_value)
            for part in row_blocks(query.shape[1], numbers, at_once)
        ],
        1,
    )
    outputs = residual + dropout(linear(weights, f"{name}.output", attended))
    own_query = (linear(weights, f"{name}.query", normed_global) * (d // heads) ** -0.5).view(
        clients, -1, heads, d // heads
    )
    own_share = torch.einsum("kahd,kghd->kagh", own_query, far_key).softmax(2)
    own = torch.einsum("kagh,kghd->kahd", own_share, far_value).flatten(2)
    moved = global_nodes + linear(weights, f"{name}.output", own)
    return feed_forward(weights, name, outputs, dropout), feed_forward(weights, name, moved, Dropout(0, None))


@dataclass(frozen=True)
class GraphTransformer:
    """The architecture, usable with sampled neighbours; ``feed_forward`` is the width inside the FFN.

    Without ``global_attention`` nodes attend to their neighbours alone; all weights are used all the same.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    global_attention: bool = True

    def __post_init__(self) -> None:
        require_least(self, layers=1, hidden=1, heads=1, feed_forward=1)
        if self.hidden % self.heads:
            raise FglauditError(
                f"hidden must be a multiple of heads; got {self.hidden} and {self.heads}; use e.g. 128 and 4"
            )

    def layout(self, num_inputs: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of one model; ``num_inputs`` are features and encoding together, in this order."""
        d, m = self.hidden, self.feed_forward
        layout: dict[str, tuple[int, ...]] = {"input.weight": (num_inputs, d), "input.bias": (d,)}
        for index in range(self.layers):
            name = f"layers.{index}"
            layout |= {f"{name}.norm_attention.scale": (d,), f"{name}.norm_attention.shift": (d,)}
            layout |= {f"{name}.query.weight": (d, d), f"{name}.query.bias": (d,)}
            layout |= {f"{name}.key_value.weight": (d, 2 * d), f"{name}.key_value.bias": (2 * d,)}
            layout |= {f"{name}.output.weight": (d, d), f"{name}.output.bias": (d,)}
            layout |= {f"{name}.norm_feed_forward.scale": (d,), f"{name}.norm_feed_forward.shift": (d,)}
            layout |= {f"{name}.expand.weight": (d, m), f"{name}.expand.bias": (m,)}
            layout |= {f"{name}.contract.weight": (m, d), f"{name}.contract.bias": (d,)}
        return layout | {
            "norm.scale": (d,),
            "norm.shift": (d,),
            "classes.weight": (d, num_classes),
            "classes.bias": (num_classes,),
        }

    def logits(
        self,
        weights: Weights,
        inputs: Tensor,
        neighborhoods: Sequence[Neighborhood],
        global_nodes: Tensor,
        dropout: Dropout,
    ) -> Tensor:
        """Return the class scores [K, m, classes] of the last layer's targets.

        Args:
            weights: [K, ...] by name.
            inputs: H0 [K, n, d].
            global_nodes: [K, g, d].
        """
        rows = dropout(inputs)
        if not self.global_attention:
            global_nodes = global_nodes[:, :0]
        for index, where in enumerate(neighborhoods):
            rows, global_nodes = hybrid_layer(weights, index, self.heads, rows, where, global_nodes, dropout)
        return linear(weights, "classes", layer_norm(weights, "norm", rows))
